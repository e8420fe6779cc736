#include "client/wire_tensor.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hyperserve {
namespace {

constexpr std::pair<Dtype, v1::Dtype> kDtypes[] = {
    {Dtype::kF32, v1::DTYPE_F32}, {Dtype::kF64, v1::DTYPE_F64}, {Dtype::kF16, v1::DTYPE_F16},
    {Dtype::kU8, v1::DTYPE_U8},   {Dtype::kI64, v1::DTYPE_I64},
};

}  // namespace

v1::Tensor ToWire(const TensorView& tensor) {
  v1::Tensor wire;
  for (const auto& [ours, theirs] : kDtypes) {
    if (ours == tensor.dtype) wire.set_dtype(theirs);
  }
  wire.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
  wire.set_data(tensor.bytes.data(), tensor.bytes.size());
  return wire;
}

v1::Tensor ToWire(const HostTensor& tensor) {
  return ToWire(TensorView{.dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes});
}

absl::StatusOr<HostTensor> FromWire(const v1::Tensor& tensor) {
  for (const auto& [ours, theirs] : kDtypes) {
    if (theirs != tensor.dtype()) continue;
    HostTensor host{.dtype = ours, .shape = {tensor.shape().begin(), tensor.shape().end()}};
    const auto elements = ElementCount(host.shape);
    if (!elements || static_cast<size_t>(*elements) * DtypeSize(ours) != tensor.data().size()) {
      return absl::InternalError(absl::StrCat("the reply holds a tensor of shape ",
                                              ShapeText(host.shape), " in ", tensor.data().size(),
                                              " bytes, which do not fit together"));
    }
    host.bytes.resize(tensor.data().size());
    std::memcpy(host.bytes.data(), tensor.data().data(), tensor.data().size());
    return host;
  }
  return absl::InternalError(
      absl::StrCat("the reply holds a tensor of unknown dtype ", tensor.dtype()));
}

}  // namespace hyperserve
