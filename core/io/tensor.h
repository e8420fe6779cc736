// Arrays as plain bytes: what files and the wire carry, and what the engines take and give. No
// LibTorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyperserve {

enum class Dtype { kF32, kF64, kF16, kU8, kI64 };

// The one table of dtypes, in the order of Dtype: everything else about them is derived from it.
struct DtypeEntry {
  Dtype dtype;
  std::string_view name;  // as in safetensors; the wire puts DTYPE_ before it
  size_t size;            // bytes of one element
};
inline constexpr std::array<DtypeEntry, 5> kDtypes = {{{Dtype::kF32, "F32", 4},
                                                       {Dtype::kF64, "F64", 8},
                                                       {Dtype::kF16, "F16", 2},
                                                       {Dtype::kU8, "U8", 1},
                                                       {Dtype::kI64, "I64", 8}}};

constexpr const DtypeEntry& EntryOf(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }
constexpr size_t DtypeSize(Dtype dtype) { return EntryOf(dtype).size; }
constexpr std::string_view DtypeName(Dtype dtype) { return EntryOf(dtype).name; }
std::optional<Dtype> DtypeFromName(std::string_view name);
std::string DtypeNames();  // "F32, F64, F16, U8, I64", for error texts

using Shape = std::vector<int64_t>;
std::string ShapeText(const Shape& shape);  // "[64, 1, 28, 28]"
// Product of the dimensions; nullopt when one is negative or the product does not fit in int64.
std::optional<int64_t> ElementCount(const Shape& shape);

// A borrowed array: its bytes belong to a file, a message or a HostTensor that must outlive it.
// Row-major, little-endian. Invariant: bytes.size() == ElementCount(shape) * DtypeSize(dtype).
struct TensorView {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// The same, owned.
struct HostTensor {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::vector<std::byte> bytes;

  static HostTensor Zeros(Dtype dtype, Shape shape);
  static HostTensor CopyOf(const TensorView& view);
  TensorView view() const { return {.dtype = dtype, .shape = shape, .bytes = bytes}; }
  int64_t elements() const;
  // Typed views. Precondition: T is the type of dtype's elements.
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

// Rows: the first dimension counts them. An array without dimensions stands for what was not asked
// for: it has no rows, its part is itself, and joining it changes nothing.
int64_t RowCount(const TensorView& array);
size_t RowBytes(const TensorView& array);  // of one row; 0 where there is none
// Borrowed rows [begin, begin + count). Precondition: the array has them.
TensorView RowsOf(const TensorView& array, int64_t begin, int64_t count);
// A copy of the rows at these places, in this order; a place may come twice.
HostTensor RowsAt(const TensorView& array, std::span<const int64_t> places);
// Puts the rows of `part` behind those of `whole`. Precondition: equal dtypes and shapes of a row.
void AppendRows(const TensorView& part, HostTensor& whole);
// All rows of all parts, in order.
HostTensor JoinRows(std::span<const HostTensor> parts);

// All elements as doubles, in order. Precondition: not F16.
std::vector<double> AsDoubles(const TensorView& array);

}  // namespace hyperserve
