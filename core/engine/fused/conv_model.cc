#include "core/engine/fused/conv_model.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/fused/net_reader.h"
#include "core/engine/fused/table_numbers.h"
#include "core/io/tensor.h"
#include "core/kernels/conv/conv_fit.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
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
bool IsNone(HeightWidth size) { return size.height == 0 && size.width == 0; }

constexpr int64_t kTaps = 9;

// A convolution of 3x3 or 1x1 and any groups as one of 3x3 and one group.
kernels::ConvLayer DenseLayer(const Conv2dLayer& layer, const std::vector<float>& weight,
                              std::vector<float> bias) {
  const int64_t taps = layer.kernel.height * layer.kernel.width;
  const int64_t inputs = layer.in / layer.groups, outputs = layer.out / layer.groups;
  std::vector<float> dense(static_cast<size_t>(layer.out * layer.in * kTaps));
  for (int64_t out = 0; out < layer.out; ++out) {
    const int64_t first = out / outputs * inputs;  // what its group reads
    for (int64_t in = 0; in < inputs; ++in) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t to = (out * layer.in + first + in) * kTaps + (taps == 1 ? kTaps / 2 : tap);
        dense[static_cast<size_t>(to)] =
            weight[static_cast<size_t>((out * inputs + in) * taps + tap)];
      }
    }
  }
  return {.inputs = {},
          .outputs = static_cast<int>(layer.out),
          .weight = std::move(dense),
          .bias = std::move(bias),
          .activation = ConvActivation::kNone,
          .slopes = {}};
}

// What `layer` does after `before`, in one. Precondition: it is of 1x1, and no activation stands
// between.
kernels::ConvLayer Folded(const kernels::ConvLayer& before, kernels::ConvLayer layer) {
  const auto outputs = static_cast<size_t>(layer.outputs);
  const auto middle = static_cast<size_t>(before.outputs);
  const size_t columns = before.weight.size() / middle;
  std::vector<double> weight(outputs * columns), bias(outputs);
  for (size_t out = 0; out < outputs; ++out) {
    if (!layer.bias.empty()) bias[out] = layer.bias[out];
    for (size_t m = 0; m < middle; ++m) {
      const double map = layer.weight[(out * middle + m) * kTaps + kTaps / 2];
      if (!before.bias.empty()) bias[out] += map * before.bias[m];
      for (size_t i = 0; i < columns; ++i) {
        weight[out * columns + i] += map * before.weight[m * columns + i];
      }
    }
  }
  layer.inputs = before.inputs;
  layer.weight.assign(weight.begin(), weight.end());
  layer.bias.assign(bias.begin(), bias.end());
  return layer;
}

// Reads a list of layers as convolutions with activations between them.
class ConvReader : public NetReader<ConvReader> {
 public:
  // `inputs`: what the first layer reads.
  ConvReader(const TensorMap& tensors, std::string who, std::vector<ConvInput> inputs)
      : NetReader(tensors, std::move(who)), inputs_(std::move(inputs)) {}

  absl::StatusOr<kernels::ConvNet> Read(const LayerList& layers) && {
    HS_RETURN_IF_ERROR(TakeAll(layers));
    return std::move(net_);
  }

 private:
  friend NetReader;
  using NetReader::Take;
  bool Take(const DepthCatLayer& layer) {
    inputs_.insert(layer.first ? inputs_.begin() : inputs_.end(), ConvInput::kDepth);
    return true;
  }
  bool Take(const Conv2dLayer& layer) {
    const bool map = IsOne(layer.kernel) && IsNone(layer.padding);
    const bool three = IsThree(layer.kernel) && IsOne(layer.padding);
    if (layer.stride != 1 || !(map || three)) return false;
    kernels::ConvLayer dense = DenseLayer(layer, LayerNumbers("weight"),
                                          layer.bias ? LayerNumbers("bias") : std::vector<float>());
    const bool folds = map && !net_.empty() && net_.back().activation == ConvActivation::kNone &&
                       inputs_.size() == 1;
    if (folds) {
      net_.back() = Folded(net_.back(), std::move(dense));
      return true;
    }
    dense.inputs = std::exchange(inputs_, {ConvInput::kBefore});
    net_.push_back(std::move(dense));
    return true;
  }
  bool Take(const SoftplusLayer& layer) {
    return layer.beta == 1.0 && Activate(ConvActivation::kSoftplus);
  }
  bool Take(const TanhLayer&) { return Activate(ConvActivation::kTanh); }
  bool Take(const SiluLayer&) { return Activate(ConvActivation::kSilu); }
  bool Take(const ReluLayer&) { return Activate(ConvActivation::kRectifier); }
  bool Take(const LeakyReluLayer& layer) {
    return Rectify({static_cast<float>(layer.negative_slope)});
  }
  bool Take(const PreluLayer&) { return Rectify(LayerNumbers("weight")); }

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
    layer.slopes = SlopesOf(std::move(slopes), layer.outputs);
    return true;
  }

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

// The readout of a table, if its layers are those of kernels::ConvReadout.
class ReadoutReader {
 public:
  // `tensors` on the CPU, in float32; `prefix`: of the net's tensors.
  ReadoutReader(const TensorMap& tensors, std::string prefix)
      : tensors_(tensors), prefix_(std::move(prefix)) {}

  absl::StatusOr<kernels::ConvReadout> Read(const TableSpec& spec) && {
    const LayerList& net = spec.net;
    // The first and the last convolution: 1x1, with what halves and doubles the resolution around.
    const size_t down = Halves(net.front()) && Doubles(net.back()) ? 1 : 0;
    const size_t up = net.size() - 1 - down;
    if (up < down + 2 || !IsMap(net[down]) || !IsMap(net[up]) || !MiddleFits(net, down, up)) {
      return absl::UnimplementedError(absl::StrCat(
          prefix_,
          ": the fused kernel has nets of tables only that are a 1x1 convolution, 3x3 "
          "convolutions and a 1x1 convolution, with silu between them, as they are or between "
          "pixel_unshuffle and pixel_shuffle by 2"));
    }
    kernels::ConvReadout readout{.inputs = {},
                                 .scale = down == 1 ? 2 : 1,
                                 .hidden = Channels(net[down]),
                                 .down = Numbers(down, "weight"),
                                 .down_bias = Numbers(down, "bias"),
                                 .middle = {},
                                 .up = Numbers(up, "weight"),
                                 .up_bias = Numbers(up, "bias")};
    for (const CorrectionInput input : spec.inputs) {
      readout.inputs.push_back(input == CorrectionInput::kSlopes   ? ConvInput::kSlopes
                               : input == CorrectionInput::kState0 ? ConvInput::kState0
                                                                   : ConvInput::kBefore);
    }
    for (size_t i = down + 2; i < up; i += 2) {
      readout.middle.push_back({.inputs = {ConvInput::kBefore},
                                .outputs = Channels(net[i]),
                                .weight = Numbers(i, "weight"),
                                .bias = Numbers(i, "bias"),
                                .activation = ConvActivation::kSilu,
                                .slopes = {}});
    }
    return readout;
  }

 private:
  static bool Halves(const Layer& layer) {
    const auto* kind = std::get_if<PixelUnshuffleLayer>(&layer.kind);
    return kind != nullptr && kind->downscale_factor == 2;
  }
  static bool Doubles(const Layer& layer) {
    const auto* kind = std::get_if<PixelShuffleLayer>(&layer.kind);
    return kind != nullptr && kind->upscale_factor == 2;
  }
  static bool IsPlain(const Conv2dLayer& layer) {
    return layer.stride == 1 && layer.groups == 1 && layer.bias;
  }
  static bool IsMap(const Layer& layer) {
    const auto* conv = std::get_if<Conv2dLayer>(&layer.kind);
    return conv != nullptr && IsPlain(*conv) && IsOne(conv->kernel) && IsNone(conv->padding);
  }
  static bool IsMiddle(const Layer& layer) {
    const auto* conv = std::get_if<Conv2dLayer>(&layer.kind);
    return conv != nullptr && IsPlain(*conv) && IsThree(conv->kernel) && IsOne(conv->padding);
  }
  static int Channels(const Layer& conv) {
    return static_cast<int>(std::get<Conv2dLayer>(conv.kind).out);
  }
  // Between two convolutions: silu and 3x3 convolutions in turns, silu at both ends.
  static bool MiddleFits(const LayerList& net, size_t down, size_t up) {
    for (size_t i = down + 1; i < up; ++i) {
      const bool silu = (i - down) % 2 == 1;
      if (silu ? !std::holds_alternative<SiluLayer>(net[i].kind) : !IsMiddle(net[i])) return false;
    }
    return (up - down) % 2 == 0;
  }

  std::vector<float> Numbers(size_t layer, const char* role) const {
    return NumbersOf(tensors_.at(absl::StrCat(prefix_, ".", layer, ".", role)));
  }

  const TensorMap& tensors_;
  const std::string prefix_;
};

// Sets what of a learned solver belongs to the table of so many evaluations.
absl::Status ReadTable(const Hypersolver& learned, int64_t evaluations, kernels::ConvModel& conv) {
  const Hypersolver::TableFacts& facts = *learned.table(evaluations);
  if (evaluations == 0) return absl::UnimplementedError("a flow map of images has no field to run");
  const TensorMap tensors = learned.weights().Tensors(at::kCPU, at::kFloat);
  conv.table = TableNumbers<kernels::ConvTable>(facts, tensors, conv.channels);
  if (facts.spec->net.empty()) return absl::OkStatus();
  HS_ASSIGN_OR_RETURN(
      conv.readout,
      ReadoutReader(tensors, TablePrefix(facts.spec->evaluations) + ".net").Read(*facts.spec));
  return absl::OkStatus();
}

}  // namespace

int64_t FusedConvMacs(const LayerList& layers, const Shape& state) {
  int64_t macs = 0;
  for (const Layer& layer : layers) {
    const auto* conv = std::get_if<Conv2dLayer>(&layer.kind);
    if (conv != nullptr) macs += conv->in * conv->out * kTaps * state[1] * state[2];
  }
  return macs;
}

absl::StatusOr<kernels::ConvModel> ConvModelOf(const Model& model, const Hypersolver* correction,
                                               int64_t evaluations) {
  const Shape& state = model.state_shape();
  if (state.size() != 3) {
    return absl::UnimplementedError(
        absl::StrCat("the state ", ShapeText(state), " is not an image"));
  }
  kernels::ConvModel conv{.channels = static_cast<int>(state[0]),
                          .height = static_cast<int>(state[1]),
                          .width = static_cast<int>(state[2]),
                          .field = {},
                          .correction = std::nullopt,
                          .table = std::nullopt,
                          .readout = std::nullopt};
  const TensorMap weights = model.weights().Tensors(at::kCPU, at::kFloat);
  HS_ASSIGN_OR_RETURN(conv.field,
                      ConvReader(weights, "field", {ConvInput::kBefore}).Read(model.spec().field));
  if (correction != nullptr && correction->spec().learned()) {
    HS_RETURN_IF_ERROR(ReadTable(*correction, evaluations, conv));
  } else if (correction != nullptr) {
    std::vector<ConvInput> inputs;
    for (const CorrectionInput input : correction->spec().inputs) inputs.push_back(InputOf(input));
    const TensorMap of_correction = correction->weights().Tensors(at::kCPU, at::kFloat);
    HS_ASSIGN_OR_RETURN(
        conv.correction,
        ConvReader(of_correction, "net", std::move(inputs)).Read(correction->spec().net));
  }
  const std::string misfit = kernels::ConvMisfit(conv);
  if (!misfit.empty()) return absl::UnimplementedError(misfit);
  return conv;
}

}  // namespace hyperserve
