#include "core/engine/fused/conv_model.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/kernels/conv/conv_fit.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"

namespace hyperserve {
namespace {

using kernels::ConvActivation;
using kernels::ConvInput;

bool IsThree(HeightWidth size) { return size.height == 3 && size.width == 3; }
bool IsOne(HeightWidth size) { return size.height == 1 && size.width == 1; }

// Reads a list of layers as convolutions with activations between them.
class NetReader {
 public:
  // `tensors` on the CPU, in float32. `inputs`: what the first layer reads.
  NetReader(const TensorMap& tensors, std::string who, std::vector<ConvInput> inputs)
      : tensors_(tensors), who_(std::move(who)), inputs_(std::move(inputs)) {}

  absl::StatusOr<kernels::ConvNet> Read(const LayerList& layers) && {
    for (size_t i = 0; i < layers.size(); ++i) {
      name_ = absl::StrCat(who_, ".", i);
      const bool taken = std::visit([&](const auto& kind) { return Take(kind); }, layers[i].kind);
      if (!taken) {
        return absl::UnimplementedError(absl::StrCat(name_, ".", Absl(LayerName(layers[i])),
                                                     " is not a layer of the fused kernel here"));
      }
    }
    return std::move(net_);
  }

 private:
  // Each returns false where the layer cannot stand here.
  template <class Kind>
  bool Take(const Kind&) {
    return false;
  }
  bool Take(const DepthCatLayer& layer) {
    inputs_.insert(layer.first ? inputs_.begin() : inputs_.end(), ConvInput::kDepth);
    return true;
  }
  bool Take(const Conv2dLayer& layer) {
    if (!IsThree(layer.kernel) || !IsOne(layer.padding) || layer.stride != 1 || layer.groups != 1) {
      return false;
    }
    net_.push_back({.inputs = std::exchange(inputs_, {ConvInput::kBefore}),
                    .outputs = static_cast<int>(layer.out),
                    .weight = Numbers("weight"),
                    .bias = layer.bias ? Numbers("bias") : std::vector<float>(),
                    .activation = ConvActivation::kNone,
                    .slopes = {}});
    return true;
  }
  bool Take(const SoftplusLayer& layer) {
    return layer.beta == 1.0 && Activate(ConvActivation::kSoftplus);
  }
  bool Take(const ReluLayer&) { return Activate(ConvActivation::kRectifier); }
  bool Take(const LeakyReluLayer& layer) {
    return Rectify({static_cast<float>(layer.negative_slope)});
  }
  bool Take(const PreluLayer&) { return Rectify(Numbers("weight")); }

  // After a convolution, before what reads the depth.
  bool Activate(ConvActivation activation) {
    if (net_.empty() || net_.back().activation != ConvActivation::kNone || inputs_.size() != 1) {
      return false;
    }
    net_.back().activation = activation;
    return true;
  }
  // `slopes`: one for all channels, or one for each.
  bool Rectify(std::vector<float> slopes) {
    if (!Activate(ConvActivation::kRectifier)) return false;
    kernels::ConvLayer& layer = net_.back();
    if (slopes.size() == 1) slopes.assign(static_cast<size_t>(layer.outputs), slopes[0]);
    layer.slopes = std::move(slopes);
    return true;
  }

  std::vector<float> Numbers(const char* role) const {
    const at::Tensor& tensor = tensors_.find(absl::StrCat(name_, ".", role))->second;
    const float* begin = tensor.const_data_ptr<float>();
    return {begin, begin + tensor.numel()};
  }

  const TensorMap& tensors_;
  const std::string who_;
  std::string name_;               // of the layer that is read
  std::vector<ConvInput> inputs_;  // of the next convolution
  kernels::ConvNet net_;
};

ConvInput InputOf(CorrectionInput input) {
  switch (input) {
    case CorrectionInput::kState:
      return ConvInput::kBefore;
    case CorrectionInput::kSlope1:
      return ConvInput::kSlope1;
    case CorrectionInput::kSlope2:
      return ConvInput::kSlope2;
    case CorrectionInput::kState0:
      return ConvInput::kState0;
    case CorrectionInput::kStep:
      return ConvInput::kStep;
    case CorrectionInput::kDepth:
    case CorrectionInput::kSlopes:  // of readouts only, which have no one-step method
      break;
  }
  return ConvInput::kDepth;
}

}  // namespace

absl::StatusOr<kernels::ConvModel> ConvModelOf(const Model& model, const Hypersolver* correction) {
  const Shape& state = model.state_shape();
  if (state.size() != 3) {
    return absl::UnimplementedError(
        absl::StrCat("the state ", ShapeText(state), " is not an image"));
  }
  kernels::ConvModel conv{.channels = static_cast<int>(state[0]),
                          .height = static_cast<int>(state[1]),
                          .width = static_cast<int>(state[2]),
                          .field = {},
                          .correction = std::nullopt};
  const TensorMap weights = model.weights().Tensors(at::kCPU, at::kFloat);
  HS_ASSIGN_OR_RETURN(conv.field,
                      NetReader(weights, "field", {ConvInput::kBefore}).Read(model.spec().field));
  if (correction != nullptr) {
    std::vector<ConvInput> inputs;
    for (const CorrectionInput input : correction->spec().inputs) inputs.push_back(InputOf(input));
    const TensorMap of_correction = correction->weights().Tensors(at::kCPU, at::kFloat);
    HS_ASSIGN_OR_RETURN(
        conv.correction,
        NetReader(of_correction, "net", std::move(inputs)).Read(correction->spec().net));
  }
  const std::string misfit = kernels::ConvMisfit(conv);
  if (!misfit.empty()) return absl::UnimplementedError(misfit);
  return conv;
}

}  // namespace hyperserve
