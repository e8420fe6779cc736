// Arrays as plain bytes, row-major and little-endian. Files and the wire carry them, and engines
// take and return them. No LibTorch. Functions are pure and may be called from any thread.
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

// The dtypes that files and the wire may hold.
enum class Dtype { kF32, kF64, kF16, kU8, kI64, kBF16 };

// The table of dtypes, in the order of Dtype. All other knowledge about them is derived from it.
struct DtypeEntry {
  Dtype dtype;
  std::string_view name;  // as in safetensors; the wire's name is DTYPE_ and this
  size_t size;            // bytes of one element
};
inline constexpr std::array<DtypeEntry, 6> kDtypes = {{{Dtype::kF32, "F32", 4},
                                                       {Dtype::kF64, "F64", 8},
                                                       {Dtype::kF16, "F16", 2},
                                                       {Dtype::kU8, "U8", 1},
                                                       {Dtype::kI64, "I64", 8},
                                                       {Dtype::kBF16, "BF16", 2}}};

// The entry of static storage, and what it says. F16 and BF16 count as floating.
constexpr const DtypeEntry& EntryOf(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }
constexpr size_t DtypeSize(Dtype dtype) { return EntryOf(dtype).size; }
constexpr std::string_view DtypeName(Dtype dtype) { return EntryOf(dtype).name; }
constexpr bool IsFloating(Dtype dtype) { return dtype != Dtype::kU8 && dtype != Dtype::kI64; }
std::optional<Dtype> DtypeFromName(std::string_view name);  // nullopt: not in the table
std::string DtypeNames();  // "F32, F64, F16, U8, I64, BF16", for error messages

using Shape = std::vector<int64_t>;
std::string ShapeText(const Shape& shape);  // "[64, 1, 28, 28]"
// The product of the dimensions; nullopt where one is negative or the product exceeds int64_t.
std::optional<int64_t> ElementCount(const Shape& shape);

// A borrowed array: its bytes belong to a file, a message or a HostTensor, which must outlive it.
// Invariant: bytes.size() == ElementCount(shape) * DtypeSize(dtype). The bytes need not be aligned
// to the elements.
//
// The one exception is an array without dimensions and without bytes. It stands for a result that
// was not asked for.
struct TensorView {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// The same with bytes of its own, aligned to the elements.
struct HostTensor {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::vector<std::byte> bytes;

  static HostTensor Zeros(Dtype dtype, Shape shape);  // precondition: ElementCount(shape)
  static HostTensor CopyOf(const TensorView& view);
  TensorView view() const { return {.dtype = dtype, .shape = shape, .bytes = bytes}; }
  // By the bytes, so 0 for a result that was not asked for.
  int64_t elements() const;
  // The elements as values of T. Precondition: T has the type of dtype's elements.
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

// Rows are the parts along the first dimension. An array without dimensions has no rows; RowsOf
// returns it as it is, and AppendRows and JoinRows ignore it.
int64_t RowCount(const TensorView& array);
size_t RowBytes(const TensorView& array);  // of one row; 0 where there are no rows
// Borrows rows [begin, begin + count). Precondition: the array has them.
TensorView RowsOf(const TensorView& array, int64_t begin, int64_t count);
// Copies the rows at these places, in this order; a place may come twice. Precondition: the array
// has a first dimension, and each place lies below it.
HostTensor RowsAt(const TensorView& array, std::span<const int64_t> places);
// Appends the rows of `part` to `whole`. Precondition: equal dtypes and row shapes.
void AppendRows(const TensorView& part, HostTensor& whole);
// All rows of all parts, in order.
HostTensor JoinRows(std::span<const HostTensor> parts);

// All elements as doubles, in order; one of them. Exact but for I64 beyond 2^53. Precondition: the
// index is below the number of elements.
std::vector<double> AsDoubles(const TensorView& array);
// Reads the bytes one by one: the array need not be aligned.
double ElementAsDouble(const TensorView& array, int64_t index);
// A copy with each element rounded to the nearest of F32, F64 or F16; what is too large for F16
// becomes infinite there. Precondition: `dtype` is one of these three.
HostTensor ConvertedTo(const TensorView& array, Dtype dtype);

}  // namespace hyperserve
