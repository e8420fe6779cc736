#include "core/io/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/io/half.h"

namespace hyperserve {
namespace {

// F32 [rows, 2]: 0, 1, 2, ...
HostTensor Counting(int64_t rows) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kF32, {rows, 2});
  for (size_t i = 0; i < tensor.as<float>().size(); ++i) tensor.as<float>()[i] = float(i);
  return tensor;
}

TEST(Dtypes, NamesAreInversesAndUnlike) {
  std::set<std::string_view> names;
  for (const DtypeEntry& entry : kDtypes) {
    EXPECT_EQ(DtypeName(entry.dtype), entry.name);
    EXPECT_EQ(DtypeFromName(entry.name), entry.dtype);
    EXPECT_EQ(HostTensor::Zeros(entry.dtype, {3}).bytes.size(), 3 * entry.size) << entry.name;
    names.insert(entry.name);
  }
  EXPECT_EQ(names.size(), kDtypes.size());
  EXPECT_EQ(DtypeFromName("F8_E4M3"), std::nullopt);
  EXPECT_EQ(DtypeFromName(""), std::nullopt);
  EXPECT_EQ(DtypeNames(), "F32, F64, F16, U8, I64, BF16");
}

// Every F16 is exact in float32 and comes back as it was, NaNs apart.
TEST(Halves, ComeBackAsTheyWere) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const float number = FloatFromHalf(static_cast<uint16_t>(bits));
    if (std::isnan(number)) continue;
    ASSERT_EQ(HalfFromDouble(number), bits) << number;
  }
  EXPECT_TRUE(std::isnan(FloatFromHalf(HalfFromDouble(NAN))));
  EXPECT_EQ(FloatFromHalf(0x3C00), 1);
  EXPECT_EQ(FloatFromHalf(0xC000), -2);
  EXPECT_EQ(FloatFromHalf(0x7BFF), 65504);
  EXPECT_EQ(FloatFromHalf(0x0001), 0x1p-24F);
}

// Between each pair of neighbours: below, at and above the tie.
TEST(Halves, RoundToTheNearestTiesToEven) {
  for (int bits = 0; bits < 0x7BFF; ++bits) {
    const double low = FloatFromHalf(static_cast<uint16_t>(bits));
    const double high = FloatFromHalf(static_cast<uint16_t>(bits + 1));
    const double tie = (low + high) / 2;
    ASSERT_EQ(HalfFromDouble(std::nextafter(tie, low)), bits);
    ASSERT_EQ(HalfFromDouble(std::nextafter(tie, high)), bits + 1);
    ASSERT_EQ(HalfFromDouble(tie), bits + bits % 2);
    ASSERT_EQ(HalfFromDouble(-tie), 0x8000 | (bits + bits % 2));
  }
  EXPECT_EQ(HalfFromDouble(std::nextafter(65520.0, 0)), 0x7BFF);
  EXPECT_EQ(HalfFromDouble(65520), 0x7C00);
  EXPECT_EQ(HalfFromDouble(-1e300), 0xFC00);
}

TEST(Conversion, RoundsOnceAndKeepsTheShape) {
  HostTensor doubles = HostTensor::Zeros(Dtype::kF64, {2, 1});
  doubles.as<double>()[0] = 1 + 0x1p-11 + 0x1p-40;  // over float it would be a tie
  doubles.as<double>()[1] = 0.1;
  const HostTensor halves = ConvertedTo(doubles.view(), Dtype::kF16);
  EXPECT_EQ(halves.shape, doubles.shape);
  EXPECT_EQ(AsDoubles(halves.view())[0], 1 + 0x1p-10);
  EXPECT_EQ(ConvertedTo(doubles.view(), Dtype::kF32).as<float>()[1], 0.1F);
  EXPECT_EQ(ConvertedTo(halves.view(), Dtype::kF64).as<double>()[0], 1 + 0x1p-10);
  const HostTensor none = ConvertedTo(HostTensor().view(), Dtype::kF16);
  EXPECT_TRUE(none.shape.empty() && none.bytes.empty());
  HostTensor brain = HostTensor::Zeros(Dtype::kBF16, {1});
  brain.as<uint16_t>()[0] = 0x4049;
  EXPECT_EQ(AsDoubles(brain.view())[0], 3.140625);
}

TEST(Rows, AreCutWithoutACopy) {
  const HostTensor whole = Counting(5);
  const TensorView part = RowsOf(whole.view(), 1, 3);
  EXPECT_EQ(part.shape, Shape({3, 2}));
  EXPECT_EQ(part.dtype, Dtype::kF32);
  EXPECT_EQ(part.bytes.data(), whole.bytes.data() + 8);
  EXPECT_EQ(AsDoubles(part), std::vector<double>({2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(RowsOf(part, 2, 0).shape, Shape({0, 2}));
  EXPECT_TRUE(RowsOf(part, 2, 0).bytes.empty());
}

TEST(Rows, JoinToWhatWasCut) {
  const HostTensor whole = Counting(7);
  std::vector<HostTensor> parts = {HostTensor()};  // what was not asked for
  for (const auto& [begin, count] : {std::pair(0, 2), {2, 4}, {6, 0}, {6, 1}}) {
    parts.push_back(HostTensor::CopyOf(RowsOf(whole.view(), begin, count)));
  }
  parts.emplace_back();
  const HostTensor joined = JoinRows(parts);
  EXPECT_EQ(joined.shape, whole.shape);
  EXPECT_EQ(joined.dtype, whole.dtype);
  EXPECT_EQ(joined.bytes, whole.bytes);
}

TEST(Rows, WhatWasNotAskedForHasNone) {
  const HostTensor nothing;
  EXPECT_EQ(RowCount(nothing.view()), 0);
  EXPECT_EQ(RowBytes(nothing.view()), 0u);
  EXPECT_TRUE(RowsOf(nothing.view(), 3, 2).shape.empty());
  EXPECT_TRUE(JoinRows(std::vector<HostTensor>(3)).shape.empty());
  EXPECT_EQ(RowBytes(HostTensor::Zeros(Dtype::kF64, {0, 4}).view()), 0u);
  EXPECT_EQ(RowBytes(HostTensor::Zeros(Dtype::kF64, {3, 4}).view()), 32u);
}

TEST(Rows, ArePickedByPlace) {
  const HostTensor picked = RowsAt(Counting(4).view(), std::vector<int64_t>{3, 0, 3});
  EXPECT_EQ(picked.shape, Shape({3, 2}));
  EXPECT_EQ(AsDoubles(picked.view()), std::vector<double>({6, 7, 0, 1, 6, 7}));
  EXPECT_EQ(RowsAt(Counting(4).view(), {}).shape, Shape({0, 2}));
}

TEST(AsDoubles, ReadsEachDtype) {
  HostTensor doubles = HostTensor::Zeros(Dtype::kF64, {2});
  doubles.as<double>()[1] = -1e300;
  EXPECT_EQ(AsDoubles(doubles.view()), std::vector<double>({0, -1e300}));
  HostTensor bytes = HostTensor::Zeros(Dtype::kU8, {3});
  bytes.as<uint8_t>()[2] = 255;
  EXPECT_EQ(AsDoubles(bytes.view()), std::vector<double>({0, 0, 255}));
  HostTensor integers = HostTensor::Zeros(Dtype::kI64, {2, 1});
  integers.as<int64_t>()[0] = -7;
  EXPECT_EQ(AsDoubles(integers.view()), std::vector<double>({-7, 0}));
  EXPECT_EQ(AsDoubles({.dtype = Dtype::kF32, .shape = {1}, .bytes = bytes.view().bytes.first(0)}),
            std::vector<double>());
}

TEST(AsDoubles, TakesBytesAtAnyAddress) {
  HostTensor tensor = Counting(2);
  std::vector<std::byte> shifted(tensor.bytes.size() + 1);
  std::copy(tensor.bytes.begin(), tensor.bytes.end(), shifted.begin() + 1);
  const TensorView view = {
      .dtype = Dtype::kF32, .shape = {2, 2}, .bytes = std::span(shifted).subspan(1)};
  EXPECT_EQ(AsDoubles(view), std::vector<double>({0, 1, 2, 3}));
}

}  // namespace
}  // namespace hyperserve
