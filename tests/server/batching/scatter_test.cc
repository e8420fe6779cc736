#include "server/batching/scatter.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/plan/row_status.h"

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

TEST(Concatenate, PutsRowsInOrder) {
  std::vector<BatchResult> parts = {SomeResult(2), SomeResult(4), SomeResult(1)};
  parts[1].bucket = 32;
  for (BatchResult& part : parts) part.solved_again = 2;
  const BatchResult whole = Concatenate(std::move(parts));
  EXPECT_EQ(whole.nfe, (std::vector<int32_t>{0, 1, 0, 1, 2, 3, 0}));
  EXPECT_EQ(whole.correction_evaluations, (std::vector<int32_t>{10, 11, 10, 11, 12, 13, 10}));
  EXPECT_EQ(whole.macs, (std::vector<int64_t>{100, 101, 100, 101, 102, 103, 100}));
  EXPECT_EQ(whole.status[1], RowStatus::kNonFinite);
  EXPECT_EQ(whole.status[6], RowStatus::kConverged);
  EXPECT_EQ(whole.state.shape, (Shape{7, 3}));
  EXPECT_EQ(whole.state.as<float>()[2 * 3], 0.0f);
  EXPECT_EQ(whole.state.as<float>()[5 * 3], 9.0f);
  EXPECT_EQ(whole.outputs.shape, (Shape{7, 2}));
  EXPECT_TRUE(whole.saved.bytes.empty());
  EXPECT_TRUE(whole.log_density.bytes.empty());
  EXPECT_EQ(whole.bucket, 32);
  EXPECT_EQ(whole.solved_again, 6);
}

}  // namespace
}  // namespace hyperserve
