#include "core/engine/readable/segment_results.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/plan/row_status.h"

namespace hyperserve {
namespace {

// Every figure of a row tells its number.
EndedRows Rows(const std::vector<int64_t>& numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  EndedRows ended{.numbers = numbers,
                  .result = {.state = HostTensor::Zeros(Dtype::kF32, {count, 2}),
                             .log_density = HostTensor::Zeros(Dtype::kF64, {count})}};
  for (size_t i = 0; i < numbers.size(); ++i) {
    ended.result.status.push_back(numbers[i] % 2 == 0 ? RowStatus::kConverged
                                                      : RowStatus::kNonFinite);
    ended.result.state.as<float>()[2 * i + 1] = static_cast<float>(numbers[i]);
    ended.result.log_density.as<double>()[i] = static_cast<double>(numbers[i]);
    ended.result.nfe.push_back(static_cast<int32_t>(numbers[i]));
    ended.result.correction_evaluations.push_back(static_cast<int32_t>(2 * numbers[i]));
    ended.result.macs.push_back(3 * numbers[i]);
  }
  return ended;
}

void ExpectRows(const BatchResult& result, int64_t first, int64_t rows, double added = 0) {
  std::vector<int64_t> numbers(static_cast<size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), first);
  BatchResult wanted = Rows(numbers).result;
  for (double& value : wanted.log_density.as<double>()) value += added;
  EXPECT_EQ(result.status, wanted.status);
  EXPECT_EQ(result.state.shape, wanted.state.shape);
  EXPECT_EQ(result.state.bytes, wanted.state.bytes);
  EXPECT_EQ(result.log_density.bytes, wanted.log_density.bytes);
  EXPECT_EQ(result.nfe, wanted.nfe);
  EXPECT_EQ(result.correction_evaluations, wanted.correction_evaluations);
  EXPECT_EQ(result.macs, wanted.macs);
  EXPECT_TRUE(result.outputs.bytes.empty());
}

TEST(SegmentResultsTest, RowsThatEndInAnyOrder) {
  SegmentResults results;
  results.Expect(0, {.ticket = 7, .rows = 3, .bucket = 32});
  results.Expect(3, {.ticket = 8, .rows = 1, .bucket = 64});
  results.Expect(4, {.ticket = 9, .rows = 2, .bucket = 64, .start_log_density = {0.5, 0.5}});
  EXPECT_EQ(results.missing_rows(), 6);
  results.Take(Rows({1, 5}));
  EXPECT_TRUE(results.TakeWhole().empty());
  results.Take(Rows({0, 2, 3}));
  EXPECT_EQ(results.missing_rows(), 1);
  const std::vector<SolvedSegment> first = results.TakeWhole();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].ticket, 7);
  EXPECT_EQ(first[0].rows.bucket, 32);
  ExpectRows(first[0].rows, 0, 3);
  EXPECT_EQ(first[1].ticket, 8);
  ExpectRows(first[1].rows, 3, 1);
  results.Take(Rows({4}));
  const std::vector<SolvedSegment> second = results.TakeWhole();
  ASSERT_EQ(second.size(), 1u);
  ExpectRows(second[0].rows, 4, 2, 0.5);
}

TEST(SegmentResultsTest, AWholeSegmentAtOnce) {
  SegmentResults results;
  results.Expect(10, {.ticket = 1, .rows = 4, .bucket = 4});
  results.Take(Rows({10, 11, 12, 13}));
  const std::vector<SolvedSegment> whole = results.TakeWhole();
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].rows.bucket, 4);
  ExpectRows(whole[0].rows, 10, 4);
}

TEST(SegmentResultsTest, RowsOfAForgottenSegmentAreIgnored) {
  SegmentResults results;
  results.Expect(0, {.ticket = 1, .rows = 2, .bucket = 2});
  results.Expect(2, {.ticket = 2, .rows = 2, .bucket = 2});
  results.Take(Rows({1, 2}));
  const std::optional<SegmentResults::RowRange> forgotten = results.Forget(1);
  ASSERT_TRUE(forgotten.has_value());
  EXPECT_EQ(forgotten->first, 0);
  EXPECT_EQ(forgotten->rows, 2);
  EXPECT_FALSE(results.Forget(1).has_value());
  EXPECT_EQ(results.missing_rows(), 1);
  results.Take(Rows({0, 3}));
  const std::vector<SolvedSegment> whole = results.TakeWhole();
  ASSERT_EQ(whole.size(), 1u);
  ExpectRows(whole[0].rows, 2, 2);
}

TEST(SegmentResultsTest, AWholeSegmentCanBeForgottenUntilItIsTaken) {
  SegmentResults results;
  results.Expect(0, {.ticket = 1, .rows = 1, .bucket = 2});
  results.Expect(1, {.ticket = 2, .rows = 1, .bucket = 2});
  results.Take(Rows({0, 1}));
  EXPECT_FALSE(results.Forget(1).has_value());
  const std::vector<SolvedSegment> whole = results.TakeWhole();
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].ticket, 2);
}

}  // namespace
}  // namespace hyperserve
