#include "core/io/tensor.h"

#include <array>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hyperserve {
namespace {

struct DtypeEntry {
  std::string_view name;
  size_t size;
};

constexpr std::array<DtypeEntry, 5> kDtypes = {
    {{"F32", 4}, {"F64", 8}, {"F16", 2}, {"U8", 1}, {"I64", 8}}};

}  // namespace

size_t DtypeSize(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].size; }

std::string_view DtypeName(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }

std::optional<Dtype> DtypeFromName(std::string_view name) {
  for (size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
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

int64_t HostTensor::elements() const {
  return static_cast<int64_t>(bytes.size() / DtypeSize(dtype));
}

}  // namespace hyperserve
