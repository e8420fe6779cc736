#include "core/io/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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
  EXPECT_EQ(DtypeFromName("BF16"), std::nullopt);
  EXPECT_EQ(DtypeFromName(""), std::nullopt);
  EXPECT_EQ(DtypeNames(), "F32, F64, F16, U8, I64");
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
