#include "server/batching/scatter.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace hyperserve {
namespace {

HostTensor Counting(int64_t rows, int64_t width) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kF32, {rows, width});
  std::iota(tensor.as<float>().begin(), tensor.as<float>().end(), 0.0f);
  return tensor;
}

BatchResult SomeResult(int64_t rows) {
  BatchResult result;
  result.state = Counting(rows, 3);
  result.outputs = Counting(rows, 2);
  for (int64_t i = 0; i < rows; ++i) {
    result.status.push_back(i % 2 == 0 ? RowStatus::kConverged : RowStatus::kNonFinite);
    result.nfe.push_back(static_cast<int32_t>(i));
    result.correction_evaluations.push_back(static_cast<int32_t>(10 + i));
    result.macs.push_back(100 + i);
  }
  result.bucket = rows;
  return result;
}

TEST(RowsOf, SegmentWithData) {
  const HostTensor data = Counting(5, 4);
  const Segment whole{.rows = 5,
                      .data = {.dtype = data.dtype, .shape = data.shape, .bytes = data.bytes}};
  const Segment part = RowsOf(whole, 2, 2);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.data.shape, (Shape{2, 4}));
  ASSERT_EQ(part.data.bytes.size(), size_t{2} * 4 * sizeof(float));
  float first = 0;
  std::memcpy(&first, part.data.bytes.data(), sizeof first);
  EXPECT_EQ(first, 8.0f);
}

TEST(RowsOf, SegmentOfNoiseMovesItsFirstRow) {
  const Segment part = RowsOf(Segment{.rows = 10, .data = {}, .seed = 7, .first_row = 1000}, 4, 3);
  EXPECT_EQ(part.rows, 3);
  EXPECT_EQ(part.seed, 7u);
  EXPECT_EQ(part.first_row, 1004u);
}

TEST(RowsOf, ResultThenConcatenateGivesItBack) {
  const BatchResult whole = SomeResult(7);
  std::vector<BatchResult> parts;
  parts.push_back(RowsOf(whole, 0, 2));
  parts.push_back(RowsOf(whole, 2, 4));
  parts.push_back(RowsOf(whole, 6, 1));
  EXPECT_EQ(parts[1].nfe, (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(parts[1].state.shape, (Shape{4, 3}));
  EXPECT_EQ(parts[1].state.as<float>()[0], 6.0f);
  parts[2].bucket = 32;

  const BatchResult again = Concatenate(std::move(parts));
  EXPECT_EQ(again.status, whole.status);
  EXPECT_EQ(again.nfe, whole.nfe);
  EXPECT_EQ(again.correction_evaluations, whole.correction_evaluations);
  EXPECT_EQ(again.macs, whole.macs);
  EXPECT_EQ(again.state.shape, whole.state.shape);
  EXPECT_EQ(again.state.bytes, whole.state.bytes);
  EXPECT_EQ(again.outputs.bytes, whole.outputs.bytes);
  EXPECT_TRUE(again.saved.bytes.empty());
  EXPECT_TRUE(again.log_density.bytes.empty());
  EXPECT_EQ(again.bucket, 32);
}

}  // namespace
}  // namespace hyperserve
