#include "training/fit/parameters.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/spec/spec.h"

namespace hyperserve {
namespace {

constexpr char kStreamName[] = "random.drawn";

at::Tensor Started(const LayerTensor& wanted, RandomStream& stream) {
  const auto [value, spread] = wanted.start;
  at::Tensor tensor = at::full(wanted.shape, value, at::kFloat);
  if (spread == 0.0) return tensor;
  float* values = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(value + spread * (2.0 * stream.Uniform() - 1.0));
  }
  return tensor;
}

}  // namespace

TensorMap InitialTensors(const LayerList& layers, std::string_view prefix, RandomStream& stream) {
  TensorMap tensors;
  for (const auto& [name, wanted] : ListTensors(layers, prefix)) {
    tensors[name] = Started(wanted, stream);
  }
  return tensors;
}

void ZeroLastLayer(const LayerList& layers, std::string_view prefix, TensorMap& tensors) {
  for (size_t index = layers.size(); index-- > 0;) {
    bool found = false;
    for (const char* suffix : {".weight", ".bias"}) {
      const auto tensor = tensors.find(absl::StrCat(std::string(prefix), ".", index, suffix));
      if (tensor == tensors.end()) continue;
      tensor->second.zero_();
      found = true;
    }
    if (found) return;
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

void SaveStream(const RandomStream& stream, TensorMap& state) {
  state[kStreamName] = at::tensor({static_cast<int64_t>(stream.drawn())}, at::kLong);
}

void LoadStream(const TensorMap& state, RandomStream& stream) {
  stream.Seek(static_cast<uint64_t>(state.at(kStreamName).item<int64_t>()));
}

}  // namespace hyperserve
