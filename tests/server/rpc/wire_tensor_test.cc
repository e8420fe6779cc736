#include "server/rpc/wire_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace hyperserve {
namespace {

using testing::HasSubstr;

template <class T>
v1::Tensor WireTensor(v1::Dtype dtype, Shape shape, const std::vector<T>& numbers) {
  v1::Tensor wire;
  wire.set_dtype(dtype);
  wire.mutable_shape()->Assign(shape.begin(), shape.end());
  wire.set_data(numbers.data(), numbers.size() * sizeof(T));
  return wire;
}

const RowsRule kPairs{.field = "inputs", .row_shape = {2}, .rows_max = 4};

void ExpectRefused(const v1::Tensor& wire, const RowsRule& rule, const std::string& words) {
  const absl::Status status = RowsFromWire(wire, rule).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

TEST(RowsFromWire, CopiesWhatFits) {
  const auto wire = WireTensor<float>(v1::DTYPE_F32, {2, 2}, {1, 2, 3, 4});
  const auto rows = RowsFromWire(wire, kPairs);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->shape, (Shape{2, 2}));
  EXPECT_EQ(rows->as<float>()[3], 4.0f);
}

TEST(RowsFromWire, Dtypes) {
  RowsRule rule = kPairs;
  const auto f64 = WireTensor<double>(v1::DTYPE_F64, {1, 2}, {1, 2});
  const auto u8 = WireTensor<uint8_t>(v1::DTYPE_U8, {1, 2}, {1, 2});
  ExpectRefused(f64, rule, "F64 only with a plan in tier double");
  ExpectRefused(u8, rule, "dtype U8 is not taken; send F32 (F64 only");
  rule.tier = Tier::kDouble;
  rule.takes_u8 = true;
  EXPECT_TRUE(RowsFromWire(f64, rule).ok());
  EXPECT_TRUE(RowsFromWire(u8, rule).ok());
  ExpectRefused(WireTensor<int64_t>(v1::DTYPE_I64, {1, 2}, {1, 2}), rule, "I64 is not taken");
  ExpectRefused(WireTensor<uint16_t>(v1::DTYPE_F16, {1, 2}, {1, 2}), rule, "F16 is not taken");
  ExpectRefused(WireTensor<float>(static_cast<v1::Dtype>(99), {1, 2}, {1, 2}), rule,
                "inputs: dtype: 99 is unknown; send F32, U8 (divided by 255 here) or F64");
  ExpectRefused({}, rule,
                "inputs: dtype is not specified; send F32, U8 (divided by 255 here) or F64");
}

TEST(RowsFromWire, Shapes) {
  ExpectRefused(WireTensor<float>(v1::DTYPE_F32, {2}, {1, 2}), kPairs,
                "shape [2] found, [rows, 2] wanted");
  ExpectRefused(WireTensor<float>(v1::DTYPE_F32, {1, 3}, {1, 2, 3}), kPairs, "[1, 3]");
  ExpectRefused(WireTensor<float>(v1::DTYPE_F32, {0, 2}, {}), kPairs, "0 rows");
  ExpectRefused(WireTensor<float>(v1::DTYPE_F32, {-1, 2}, {}), kPairs, "-1 rows");
  ExpectRefused(WireTensor<float>(v1::DTYPE_F32, {5, 2}, std::vector<float>(10)), kPairs,
                "request_rows_max = 4");
  ExpectRefused(WireTensor<float>(v1::DTYPE_F32, {2, 2}, {1, 2, 3}), kPairs,
                "12 bytes; F32 [2, 2] needs 16");
  ExpectRefused(
      WireTensor<float>(v1::DTYPE_F32, {int64_t{1} << 62, 2}, {1}),
      RowsRule{
          .field = "inputs", .row_shape = {2}, .rows_max = std::numeric_limits<int64_t>::max()},
      "4 bytes");
}

TEST(RowsFromWire, Numbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused(WireTensor<float>(v1::DTYPE_F32, {2, 2}, {1, 2, 3, nan}), kPairs,
                "row 1, element 1 is nan");
  RowsRule unit = kPairs;
  unit.unit_range = true;
  EXPECT_TRUE(RowsFromWire(WireTensor<float>(v1::DTYPE_F32, {1, 2}, {0, 1}), unit).ok());
  ExpectRefused(WireTensor<float>(v1::DTYPE_F32, {1, 2}, {0, 1.5}), unit, "within [0, 1]");
  ExpectRefused(WireTensor<float>(v1::DTYPE_F32, {1, 2}, {-0.5, 1}), unit, "element 0 is -0.5");
  ExpectRefused(WireTensor<float>(v1::DTYPE_F32, {1, 2}, {0, 1.000001f}), unit,
                "element 1 is 1.000001; numbers within [0, 1] wanted");
}

TEST(TensorToWire, GivesBackWhatCame) {
  const auto wire = WireTensor<float>(v1::DTYPE_F32, {2, 2}, {1, 2, 3, 4});
  v1::Tensor again;
  TensorToWire(*RowsFromWire(wire, kPairs), &again);
  EXPECT_EQ(again.SerializeAsString(), wire.SerializeAsString());
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
