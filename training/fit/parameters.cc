#include "training/fit/parameters.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"

namespace hyperserve {
namespace {

at::Tensor UniformWithin(double bound, const Shape& shape, RandomStream& stream) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  float* values = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(bound * (2.0 * stream.Uniform() - 1.0));
  }
  return tensor;
}

// Fills in the tensors of one layer, `name` without the final dot.
struct Initialise {
  const std::string& name;
  RandomStream& stream;
  TensorMap& tensors;

  void Affine(const Shape& weight, int64_t fan_in, bool bias) const {
    const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
    tensors[name + ".weight"] = UniformWithin(bound, weight, stream);
    if (bias) tensors[name + ".bias"] = UniformWithin(bound, {weight[0]}, stream);
  }
  void Identity(int64_t channels) const {
    tensors[name + ".weight"] = at::ones({channels});
    tensors[name + ".bias"] = at::zeros({channels});
  }

  void operator()(const LinearLayer& l) const { Affine({l.out, l.in}, l.in, l.bias); }
  void operator()(const Conv2dLayer& l) const {
    Affine({l.out, l.in, l.kernel, l.kernel}, l.in * l.kernel * l.kernel, l.bias);
  }
  void operator()(const BatchNormLayer& l) const {
    Identity(l.channels);
    tensors[name + ".running_mean"] = at::zeros({l.channels});
    tensors[name + ".running_var"] = at::ones({l.channels});
  }
  void operator()(const GroupNormLayer& l) const { Identity(l.channels); }
  void operator()(const PreluLayer& l) const {
    tensors[name + ".weight"] = at::full({l.slopes}, 0.25);
  }
  void operator()(const AugmentLayer& l) const {
    tensors.merge(InitialTensors(l.layers, name + ".layers", stream));
  }
  template <class Parameterless>
  void operator()(const Parameterless&) const {}
};

}  // namespace

TensorMap InitialTensors(const LayerList& layers, std::string_view prefix, RandomStream& stream) {
  TensorMap tensors;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name = absl::StrCat(std::string(prefix), ".", i);
    std::visit(Initialise{name, stream, tensors}, layers[i].kind);
  }
  return tensors;
}

void ZeroLastLayer(const LayerList& layers, std::string_view prefix, TensorMap& tensors) {
  const std::string name = absl::StrCat(std::string(prefix), ".", layers.size() - 1);
  for (const char* suffix : {".weight", ".bias"}) {
    const auto tensor = tensors.find(name + suffix);
    if (tensor != tensors.end()) tensor->second.zero_();
  }
}

TensorMap TrainableCopies(const TensorMap& tensors, at::Device device) {
  TensorMap copies;
  for (const auto& [name, tensor] : tensors) {
    at::Tensor copy = tensor.detach().to(device, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    copy.requires_grad_(!absl::StrContains(name, ".running_"));
    copies[name] = copy;
  }
  return copies;
}

std::vector<at::Tensor> Fitted(const TensorMap& tensors) {
  std::vector<at::Tensor> fitted;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.requires_grad()) fitted.push_back(tensor);
  }
  return fitted;
}

TensorMap Snapshot(const TensorMap& tensors) {
  TensorMap copies;
  for (const auto& [name, tensor] : tensors) {
    copies[name] = tensor.detach().to(at::kCPU, tensor.scalar_type(), false, /*copy=*/true);
  }
  return copies;
}

std::string SerializeTensors(const TensorMap& tensors) {
  std::map<std::string, HostTensor> host;
  std::map<std::string, TensorView, std::less<>> views;
  for (const auto& [name, tensor] : tensors) {
    host[name] = HostTensorFrom(tensor);
    views[name] = host[name].view();
  }
  return SerializeSafetensors(views);
}

}  // namespace hyperserve
