#include <c10/core/InferenceMode.h>

#include <cstring>

#include "core/base/status.h"
#include "core/model/net/net.h"

namespace hyperserve {
namespace {

at::ScalarType ScalarTypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return at::kFloat;
    case Dtype::kF64:
      return at::kDouble;
    case Dtype::kF16:
      return at::kHalf;
    case Dtype::kU8:
      return at::kByte;
    case Dtype::kI64:
      return at::kLong;
  }
  return at::kFloat;
}

Dtype DtypeOf(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return Dtype::kF64;
    case at::kHalf:
      return Dtype::kF16;
    case at::kByte:
      return Dtype::kU8;
    case at::kLong:
      return Dtype::kI64;
    default:
      TORCH_CHECK(type == at::kFloat, "no file type for ", type);
      return Dtype::kF32;
  }
}

}  // namespace

at::Tensor TensorFromView(const TensorView& view) {
  at::Tensor tensor = at::empty(view.shape, at::TensorOptions(ScalarTypeOf(view.dtype)));
  if (!view.bytes.empty()) std::memcpy(tensor.data_ptr(), view.bytes.data(), view.bytes.size());
  return tensor;
}

HostTensor HostTensorFrom(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
  HostTensor result =
      HostTensor::Zeros(DtypeOf(host.scalar_type()), {host.sizes().begin(), host.sizes().end()});
  if (!result.bytes.empty()) {
    std::memcpy(result.bytes.data(), host.data_ptr(), result.bytes.size());
  }
  return result;
}

NetWeights::NetWeights(std::map<std::string, LayerList, std::less<>> nets, TensorMap tensors)
    : nets_(std::move(nets)), stored_(std::move(tensors)) {}

absl::StatusOr<std::unique_ptr<const NetWeights>> NetWeights::Make(
    std::map<std::string, LayerList, std::less<>> nets, TensorMap tensors) {
  for (const auto& [prefix, layers] : nets) {
    HS_RETURN_IF_ERROR(Net::Make(layers, prefix, tensors).status());
  }
  return std::unique_ptr<const NetWeights>(new NetWeights(std::move(nets), std::move(tensors)));
}

TensorMap NetWeights::Tensors(at::Device device, at::ScalarType dtype) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  TensorMap& converted = converted_[{device.str(), dtype}];
  if (converted.empty()) {
    // Ordinary tensors, whatever the mode of the thread that asks first: a trainer may use them in
    // a graph.
    const c10::InferenceMode ordinary(false);
    for (const auto& [name, tensor] : stored_) {
      converted[name] = tensor.detach().to(device, dtype).contiguous();
    }
  }
  return converted;
}

Net NetWeights::Get(std::string_view prefix, at::Device device, at::ScalarType dtype) const {
  const auto layers = nets_.find(prefix);
  TORCH_CHECK(layers != nets_.end(), "no net '", std::string(prefix), "'");
  return Net::Make(layers->second, prefix, Tensors(device, dtype)).value();
}

}  // namespace hyperserve
