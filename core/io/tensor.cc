#include "core/io/tensor.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/io/half.h"

namespace hyperserve {
namespace {

constexpr bool InOrder() {
  for (size_t i = 0; i < kDtypes.size(); ++i) {
    if (static_cast<size_t>(kDtypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(InOrder(), "kDtypes lists the dtypes in the order of Dtype");

// The element at `index` as it stands in the bytes; a view into a file may not be aligned for T.
template <class T>
T ElementAt(const TensorView& array, int64_t index) {
  T element;
  std::memcpy(&element, array.bytes.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return element;
}

template <class T, class Round>
void Fill(const TensorView& from, HostTensor& to, Round round) {
  const std::span<T> numbers = to.as<T>();
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = round(ElementAsDouble(from, static_cast<int64_t>(i)));
  }
}

}  // namespace

std::optional<Dtype> DtypeFromName(std::string_view name) {
  for (const DtypeEntry& entry : kDtypes) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

std::string DtypeNames() {
  return absl::StrJoin(kDtypes, ", ",
                       [](std::string* out, const DtypeEntry& entry) { out->append(entry.name); });
}

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::optional<int64_t> ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return count;
}

HostTensor HostTensor::Zeros(Dtype dtype, Shape shape) {
  const std::optional<int64_t> count = ElementCount(shape);
  assert(count.has_value());
  const size_t bytes = static_cast<size_t>(*count) * DtypeSize(dtype);
  return HostTensor{
      .dtype = dtype, .shape = std::move(shape), .bytes = std::vector<std::byte>(bytes)};
}

HostTensor HostTensor::CopyOf(const TensorView& view) {
  return {
      .dtype = view.dtype, .shape = view.shape, .bytes = {view.bytes.begin(), view.bytes.end()}};
}

int64_t HostTensor::elements() const {
  return static_cast<int64_t>(bytes.size() / DtypeSize(dtype));
}

int64_t RowCount(const TensorView& array) { return array.shape.empty() ? 0 : array.shape[0]; }

size_t RowBytes(const TensorView& array) {
  const int64_t rows = RowCount(array);
  return rows == 0 ? 0 : array.bytes.size() / static_cast<size_t>(rows);
}

TensorView RowsOf(const TensorView& array, int64_t begin, int64_t count) {
  TensorView part = array;
  if (array.shape.empty()) return part;
  assert(begin >= 0 && count >= 0 && begin + count <= array.shape[0]);
  const size_t row_bytes = RowBytes(array);
  part.shape[0] = count;
  part.bytes = array.bytes.subspan(static_cast<size_t>(begin) * row_bytes,
                                   static_cast<size_t>(count) * row_bytes);
  return part;
}

HostTensor RowsAt(const TensorView& array, std::span<const int64_t> places) {
  Shape shape = array.shape;
  shape[0] = static_cast<int64_t>(places.size());
  HostTensor rows = HostTensor::Zeros(array.dtype, std::move(shape));
  const size_t row_bytes = RowBytes(array);
  for (size_t i = 0; row_bytes > 0 && i < places.size(); ++i) {
    const std::byte* const from = array.bytes.data() + static_cast<size_t>(places[i]) * row_bytes;
    std::memcpy(rows.bytes.data() + i * row_bytes, from, row_bytes);
  }
  return rows;
}

void AppendRows(const TensorView& part, HostTensor& whole) {
  if (part.shape.empty()) return;
  if (whole.shape.empty()) {
    whole = HostTensor::CopyOf(part);
    return;
  }
  assert(part.dtype == whole.dtype);
  whole.shape[0] += part.shape[0];
  whole.bytes.insert(whole.bytes.end(), part.bytes.begin(), part.bytes.end());
}

HostTensor JoinRows(std::span<const HostTensor> parts) {
  HostTensor whole;
  for (const HostTensor& part : parts) AppendRows(part.view(), whole);
  return whole;
}

double ElementAsDouble(const TensorView& array, int64_t index) {
  switch (array.dtype) {
    case Dtype::kF32:
      return ElementAt<float>(array, index);
    case Dtype::kF64:
      return ElementAt<double>(array, index);
    case Dtype::kF16:
      return FloatFromHalf(ElementAt<uint16_t>(array, index));
    case Dtype::kU8:
      return ElementAt<uint8_t>(array, index);
    case Dtype::kI64:
      return static_cast<double>(ElementAt<int64_t>(array, index));
    case Dtype::kBF16:
      return FloatFromBfloat16(ElementAt<uint16_t>(array, index));
  }
  return 0;
}

std::vector<double> AsDoubles(const TensorView& array) {
  std::vector<double> numbers(array.bytes.size() / DtypeSize(array.dtype));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = ElementAsDouble(array, static_cast<int64_t>(i));
  }
  return numbers;
}

HostTensor ConvertedTo(const TensorView& array, Dtype dtype) {
  if (array.shape.empty() && array.bytes.empty()) return {.dtype = dtype, .shape = {}, .bytes = {}};
  HostTensor to = HostTensor::Zeros(dtype, array.shape);
  if (dtype == Dtype::kF16) {
    Fill<uint16_t>(array, to, HalfFromDouble);
  } else if (dtype == Dtype::kF64) {
    Fill<double>(array, to, [](double x) { return x; });
  } else {
    Fill<float>(array, to, [](double x) { return static_cast<float>(x); });
  }
  return to;
}

}  // namespace hyperserve
