#include "client/wire_tensor.h"

#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr char kPrefix[] = "DTYPE_";  // of the names in the wire's enum

}  // namespace

v1::Tensor ToWire(const TensorView& tensor) {
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  v1::Dtype_Parse(absl::StrCat(kPrefix, Absl(DtypeName(tensor.dtype))), &dtype);
  v1::Tensor wire;
  wire.set_dtype(dtype);
  wire.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
  wire.set_data(tensor.bytes.data(), tensor.bytes.size());
  return wire;
}

v1::Tensor ToWire(const HostTensor& tensor) { return ToWire(tensor.view()); }

absl::StatusOr<HostTensor> FromWire(const v1::Tensor& tensor) {
  const absl::string_view name = absl::StripPrefix(v1::Dtype_Name(tensor.dtype()), kPrefix);
  const std::optional<Dtype> dtype = DtypeFromName({name.data(), name.size()});
  if (!dtype) {
    return absl::InternalError(
        absl::StrCat("the reply holds a tensor of unknown dtype ", tensor.dtype()));
  }
  HostTensor host{.dtype = *dtype, .shape = {tensor.shape().begin(), tensor.shape().end()}};
  const auto elements = ElementCount(host.shape);
  if (!elements || static_cast<size_t>(*elements) * DtypeSize(*dtype) != tensor.data().size()) {
    return absl::InternalError(absl::StrCat("the reply holds a tensor of shape ",
                                            ShapeText(host.shape), " in ", tensor.data().size(),
                                            " bytes, which do not fit together"));
  }
  host.bytes.resize(tensor.data().size());
  std::memcpy(host.bytes.data(), tensor.data().data(), tensor.data().size());
  return host;
}

}  // namespace hyperserve
