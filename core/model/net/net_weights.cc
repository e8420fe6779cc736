#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"

namespace hyperserve {
namespace {

// LibTorch's name of each dtype, in the order of kDtypes.
constexpr std::array<at::ScalarType, kDtypes.size()> kScalarTypes = {
    at::kFloat, at::kDouble, at::kHalf, at::kByte, at::kLong};

at::ScalarType ScalarTypeOf(Dtype dtype) { return kScalarTypes[static_cast<size_t>(dtype)]; }

Dtype DtypeOf(at::ScalarType type) {
  const auto found = std::find(kScalarTypes.begin(), kScalarTypes.end(), type);
  TORCH_CHECK(found != kScalarTypes.end(), "no file type for ", type);
  return kDtypes[static_cast<size_t>(found - kScalarTypes.begin())].dtype;
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
    // Never inference tensors, whatever the mode of the calling thread: the trainer uses them in a
    // graph.
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
