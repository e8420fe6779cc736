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
    at::kFloat, at::kDouble, at::kHalf, at::kByte, at::kLong, at::kBFloat16};

Dtype DtypeOf(at::ScalarType type) {
  const auto found = std::find(kScalarTypes.begin(), kScalarTypes.end(), type);
  TORCH_CHECK(found != kScalarTypes.end(), "no file type for ", type);
  return kDtypes[static_cast<size_t>(found - kScalarTypes.begin())].dtype;
}

}  // namespace

at::ScalarType ScalarTypeOf(Dtype dtype) { return kScalarTypes[static_cast<size_t>(dtype)]; }

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

NetWeights::NetWeights(std::map<std::string, LayerList, std::less<>> nets, TensorMap tensors,
                       std::map<std::string, Net, std::less<>> code)
    : nets_(std::move(nets)), code_(std::move(code)), stored_(std::move(tensors)) {}

absl::StatusOr<std::unique_ptr<const NetWeights>> NetWeights::Make(
    std::map<std::string, LayerList, std::less<>> nets, TensorMap tensors,
    std::map<std::string, Net, std::less<>> code) {
  for (const auto& [prefix, layers] : nets) {
    HS_RETURN_IF_ERROR(Net::Make(layers, prefix, tensors).status());
  }
  return std::unique_ptr<const NetWeights>(
      new NetWeights(std::move(nets), std::move(tensors), std::move(code)));
}

NetWeights::Converted NetWeights::Convert(at::Device device, at::ScalarType dtype) const {
  // Never inference tensors, whatever the mode of the calling thread: the trainer uses them in a
  // graph.
  const c10::InferenceMode ordinary(false);
  Converted converted;
  for (const auto& [name, tensor] : stored_) {
    converted.tensors[name] = tensor.detach().to(device, dtype).contiguous();
  }
  for (const auto& [prefix, layers] : nets_) {
    converted.nets.emplace(prefix, Net::Make(layers, prefix, converted.tensors).value());
  }
  return converted;
}

const NetWeights::Converted& NetWeights::Find(at::Device device, at::ScalarType dtype) const {
  const std::pair<std::string, at::ScalarType> key(device.str(), dtype);
  const auto found = converted_.find(key);
  if (found != converted_.end()) return found->second;
  return converted_.emplace(key, Convert(device, dtype)).first->second;
}

TensorMap NetWeights::Tensors(at::Device device, at::ScalarType dtype) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Find(device, dtype).tensors;
}

Net NetWeights::Get(std::string_view prefix, at::Device device, at::ScalarType dtype) const {
  if (const auto code = code_.find(prefix); code != code_.end()) return code->second;
  const std::lock_guard<std::mutex> lock(mutex_);
  const Converted& converted = Find(device, dtype);
  const auto net = converted.nets.find(prefix);
  TORCH_CHECK(net != converted.nets.end(), "no net '", std::string(prefix), "'");
  return net->second;
}

}  // namespace hyperserve
