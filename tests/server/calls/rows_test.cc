#include "server/calls/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/calls/ask.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

// Borrows the numbers.
template <class T>
AskedRows Asked(Dtype dtype, Shape shape, const std::vector<T>& numbers) {
  return TensorView{
      .dtype = dtype, .shape = std::move(shape), .bytes = std::as_bytes(std::span(numbers))};
}

const RowsRule kPairs{.field = "inputs", .row_shape = {2}, .rows_max = 4};

void ExpectRefused(const AskedRows& asked, const RowsRule& rule, const std::string& words) {
  const absl::Status status = TakeRows(asked, rule).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

TEST(TakeRows, CopiesWhatFits) {
  std::vector<float> numbers = {1, 2, 3, 4};
  const auto rows = TakeRows(Asked(Dtype::kF32, {2, 2}, numbers), kPairs);
  ASSERT_TRUE(rows.ok()) << rows.status();
  numbers.assign(4, 0);
  EXPECT_EQ(rows->shape, (Shape{2, 2}));
  EXPECT_EQ(rows->as<float>()[3], 4.0f);
}

TEST(TakeRows, Dtypes) {
  RowsRule rule = kPairs;
  const std::vector<double> doubles = {1, 2};
  const std::vector<uint8_t> bytes = {1, 2};
  const AskedRows f64 = Asked(Dtype::kF64, {1, 2}, doubles), u8 = Asked(Dtype::kU8, {1, 2}, bytes);
  ExpectRefused(f64, rule, "F64 only with a plan in tier double");
  ExpectRefused(u8, rule, "dtype U8 is not taken; send F32 or F16 (F64 only");
  rule.tier = Tier::kDouble;
  rule.takes_u8 = true;
  EXPECT_TRUE(TakeRows(f64, rule).ok());
  EXPECT_TRUE(TakeRows(u8, rule).ok());
  ExpectRefused(Asked<int64_t>(Dtype::kI64, {1, 2}, {1, 2}), rule, "I64 is not taken");
  const std::vector<uint16_t> halves = {0x3C00, 0xC000};
  const auto taken = TakeRows(Asked(Dtype::kF16, {1, 2}, halves), kPairs);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->dtype, Dtype::kF32);
  EXPECT_EQ(taken->as<float>()[1], -2);
  const std::vector<uint16_t> infinite = {0x3C00, 0x7C00};
  ExpectRefused(Asked(Dtype::kF16, {1, 2}, infinite), kPairs, "element 1 is inf");
  ExpectRefused(Asked(Dtype::kBF16, {1, 2}, halves), rule, "BF16 is not taken");
  ExpectRefused(absl::InvalidArgumentError("dtype: 99 is unknown"), rule,
                "inputs: dtype: 99 is unknown; send F32 or F16, U8 (divided by 255 here) or F64");
}

TEST(TakeRows, Shapes) {
  ExpectRefused(Asked<float>(Dtype::kF32, {2}, {1, 2}), kPairs,
                "shape [2] found, [rows, 2] wanted");
  ExpectRefused(Asked<float>(Dtype::kF32, {1, 3}, {1, 2, 3}), kPairs, "[1, 3]");
  ExpectRefused(Asked<float>(Dtype::kF32, {0, 2}, {}), kPairs, "0 rows");
  ExpectRefused(Asked<float>(Dtype::kF32, {-1, 2}, {}), kPairs, "-1 rows");
  ExpectRefused(Asked<float>(Dtype::kF32, {5, 2}, std::vector<float>(10)), kPairs,
                "request_rows_max = 4");
  ExpectRefused(Asked<float>(Dtype::kF32, {2, 2}, {1, 2, 3}), kPairs,
                "12 bytes; F32 [2, 2] needs 16");
  ExpectRefused(
      Asked<float>(Dtype::kF32, {int64_t{1} << 62, 2}, {1}),
      RowsRule{
          .field = "inputs", .row_shape = {2}, .rows_max = std::numeric_limits<int64_t>::max()},
      "4 bytes");
}

TEST(TakeRows, Numbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused(Asked<float>(Dtype::kF32, {2, 2}, {1, 2, 3, nan}), kPairs,
                "row 1, element 1 is nan");
  RowsRule unit = kPairs;
  unit.unit_range = true;
  EXPECT_TRUE(TakeRows(Asked<float>(Dtype::kF32, {1, 2}, {0, 1}), unit).ok());
  ExpectRefused(Asked<float>(Dtype::kF32, {1, 2}, {0, 1.5}), unit, "within [0, 1]");
  ExpectRefused(Asked<float>(Dtype::kF32, {1, 2}, {-0.5, 1}), unit, "element 0 is -0.5");
  ExpectRefused(Asked<float>(Dtype::kF32, {1, 2}, {0, 1.000001f}), unit,
                "element 1 is 1.000001; numbers within [0, 1] wanted");
}

TEST(TensorOf, RoundsToItsDtype) {
  const std::vector<double> numbers = {0.1, 2};
  EXPECT_EQ(TensorOf(numbers, {2, 1}, Dtype::kF32).as<float>()[0], 0.1f);
  const HostTensor same = TensorOf(numbers, {1, 2}, Dtype::kF64);
  EXPECT_EQ(same.shape, (Shape{1, 2}));
  EXPECT_EQ(same.as<double>()[0], 0.1);
}

TEST(BlankFailedRows, OnlyThose) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kF64, {3, 2});
  BlankFailedRows(
      std::vector<RowStatus>{RowStatus::kConverged, RowStatus::kStepLimit, RowStatus::kConverged},
      tensor);
  const auto numbers = tensor.as<double>();
  EXPECT_EQ(numbers[1], 0);
  EXPECT_TRUE(std::isnan(numbers[2]) && std::isnan(numbers[3]));
  EXPECT_EQ(numbers[4], 0);
  HostTensor nothing;
  BlankFailedRows(std::vector<RowStatus>{RowStatus::kNonFinite}, nothing);
  EXPECT_TRUE(nothing.bytes.empty());
}

}  // namespace
}  // namespace hyperserve
