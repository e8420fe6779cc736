// Arrays as plain bytes: what files and the wire carry, and what the engines take and give. No
// LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyperserve {

enum class Dtype { kF32, kF64, kF16, kU8, kI64 };
size_t DtypeSize(Dtype dtype);            // bytes of one element
std::string_view DtypeName(Dtype dtype);  // "F32", as in safetensors
std::optional<Dtype> DtypeFromName(std::string_view name);

using Shape = std::vector<int64_t>;
std::string ShapeText(const Shape& shape);  // "[64, 1, 28, 28]"
// Product of the dimensions; nullopt when one is negative or the product does not fit in int64.
std::optional<int64_t> ElementCount(const Shape& shape);

// An owned array: row-major, little-endian. Invariant: bytes.size() == ElementCount(shape) *
// DtypeSize(dtype).
struct HostTensor {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::vector<std::byte> bytes;

  static HostTensor Zeros(Dtype dtype, Shape shape);
  int64_t elements() const;
  // Typed views; T must match dtype (checked by assertion).
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

// The same, borrowed from a file or a message that must outlive it.
struct TensorView {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
};

}  // namespace hyperserve
