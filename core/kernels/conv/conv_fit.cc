#include "core/kernels/conv/conv_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hyperserve::kernels {
namespace {

// Weights are fp16 in the kernel; half its range leaves room for rounding.
constexpr float kWeightMax = 32752.0f;

bool InRange(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::fabs(value) <= kWeightMax; });
}

// What only a correction reads, in its first layer.
bool IsAside(ConvInput input) { return input != ConvInput::kBefore && input != ConvInput::kDepth; }

std::string InputsMisfit(const ConvLayer& layer) {
  for (const ConvInput input : layer.inputs) {
    if (std::count(layer.inputs.begin(), layer.inputs.end(), input) > 1) {
      return "reads one input twice; the fused kernel reads each once";
    }
  }
  if (std::count(layer.inputs.begin(), layer.inputs.end(), ConvInput::kBefore) == 0) {
    return "does not read the state where it is evaluated";
  }
  return "";
}

std::string LayerMisfit(const ConvModel& model, const ConvLayer& layer, int before) {
  const std::string misfit = InputsMisfit(layer);
  if (!misfit.empty()) return misfit;
  if (layer.outputs < 1 || layer.outputs > kConvOutputsMax) {
    return "has a layer of " + std::to_string(layer.outputs) +
           " channels; the fused kernel takes 1 to " + std::to_string(kConvOutputsMax);
  }
  size_t inputs = 0;
  for (const ConvInput input : layer.inputs) {
    inputs += static_cast<size_t>(ConvChannels(input, model, before));
  }
  const auto outputs = static_cast<size_t>(layer.outputs);
  if (layer.weight.size() != outputs * inputs * 9 ||
      (!layer.bias.empty() && layer.bias.size() != outputs) ||
      (!layer.slopes.empty() && layer.slopes.size() != outputs)) {
    return "has layers that do not fit each other";
  }
  if (!InRange(layer.weight) || !InRange(layer.bias) || !InRange(layer.slopes)) {
    return "has a weight, bias or slope beyond " + std::to_string(kWeightMax) +
           ", the fused kernel's limit";
  }
  return "";
}

std::string NetMisfit(const ConvModel& model, const ConvNet& net) {
  if (net.empty()) return "has no layers";
  int before = model.channels;
  for (const ConvLayer& layer : net) {
    const std::string misfit = LayerMisfit(model, layer, before);
    if (!misfit.empty()) return misfit;
    const bool reads_aside = std::any_of(layer.inputs.begin(), layer.inputs.end(), IsAside);
    if (reads_aside && (&net == &model.field || &layer != &net.front())) {
      return "reads more than state and depth beyond a correction's first layer";
    }
    before = layer.outputs;
  }
  if (before != model.channels) return "does not return a state";
  if (net.back().activation != ConvActivation::kNone) return "ends in an activation";
  return "";
}

std::string TableMisfit(const ConvModel& model) {
  const ConvTable& table = *model.table;
  const int n = table.evaluations();
  if (n < 1 || n > kConvEvaluationsMax) {
    return "has " + std::to_string(n) + " evaluations of f; the fused kernel takes 1 to " +
           std::to_string(kConvEvaluationsMax);
  }
  const auto maps = static_cast<size_t>(n * (n + 3) / 2);
  const auto channels = static_cast<size_t>(model.channels);
  if (table.coefficients.size() != maps * channels * channels ||
      table.offset.size() != static_cast<size_t>(n) * channels) {
    return "does not fit the state";
  }
  if (!InRange(table.coefficients) || !InRange(table.offset)) {
    return "has a number beyond " + std::to_string(kWeightMax) + ", the fused kernel's limit";
  }
  return "";
}

std::string ReadoutMisfit(const ConvModel& model) {
  const ConvReadout& readout = *model.readout;
  if (readout.scale != 1 && readout.scale != 2) return "is at neither the whole nor half a side";
  if (model.height % readout.scale != 0 || model.width % readout.scale != 0) {
    return "halves a side that is odd";
  }
  if (readout.hidden < 1 || readout.hidden > kConvOutputsMax) {
    return "has " + std::to_string(readout.hidden) +
           " hidden channels; the fused kernel takes 1 to " + std::to_string(kConvOutputsMax);
  }
  if (readout.middle.size() > kConvMiddleMax) {
    return "has " + std::to_string(readout.middle.size()) +
           " layers of 3x3; the fused kernel takes " + std::to_string(kConvMiddleMax);
  }
  size_t inputs = 0;
  for (const ConvInput input : readout.inputs) {
    if (std::count(readout.inputs.begin(), readout.inputs.end(), input) > 1) {
      return "reads one input twice; the fused kernel reads each once";
    }
    inputs += static_cast<size_t>(model.channels) *
              static_cast<size_t>(input == ConvInput::kSlopes ? model.table->evaluations() : 1);
  }
  const auto hidden = static_cast<size_t>(readout.hidden);
  const auto parts = static_cast<size_t>(readout.parts());
  const size_t ups = parts * static_cast<size_t>(model.channels);
  if (readout.down.size() != hidden * inputs * parts || readout.down_bias.size() != hidden ||
      readout.up.size() != ups * static_cast<size_t>(readout.before_up()) ||
      readout.up_bias.size() != ups) {
    return "has layers that do not fit each other";
  }
  for (const auto* numbers : {&readout.down, &readout.down_bias, &readout.up, &readout.up_bias}) {
    if (!InRange(*numbers)) {
      return "has a number beyond " + std::to_string(kWeightMax) + ", the fused kernel's limit";
    }
  }
  int before = readout.hidden;
  for (const ConvLayer& layer : readout.middle) {
    if (layer.activation != ConvActivation::kSilu ||
        layer.inputs != std::vector{ConvInput::kBefore}) {
      return "has layers of 3x3 that are not followed by silu, or read more than the one before";
    }
    const std::string misfit = LayerMisfit(model, layer, before);
    if (!misfit.empty()) return misfit;
    before = layer.outputs;
  }
  return "";
}

}  // namespace

std::string ConvMisfit(const ConvModel& model) {
  if (model.channels < 1 || model.channels > kConvChannelsMax) {
    return "the state has " + std::to_string(model.channels) +
           " channels; the fused kernel takes 1 to " + std::to_string(kConvChannelsMax);
  }
  if (std::min(model.height, model.width) < kConvPixelsLeast ||
      std::max(model.height, model.width) > kConvPixelsMost) {
    return "the state has " + std::to_string(model.height) + " x " + std::to_string(model.width) +
           " pixels; the fused kernel takes " + std::to_string(kConvPixelsLeast) + " to " +
           std::to_string(kConvPixelsMost) + " a side";
  }
  const size_t layers =
      model.field.size() + (model.correction ? model.correction->size() : size_t{0});
  if (layers > kConvLayersMax) {
    return "field and correction have " + std::to_string(layers) +
           " layers; the fused kernel takes " + std::to_string(kConvLayersMax);
  }
  const std::string misfit = NetMisfit(model, model.field);
  if (!misfit.empty()) return "the field " + misfit;
  if (model.table) {
    if (model.correction) return "a table has no one-step correction";
    const std::string of_table = TableMisfit(model);
    if (!of_table.empty()) return "the table " + of_table;
    const std::string of_readout = model.readout ? ReadoutMisfit(model) : "";
    return of_readout.empty() ? "" : "the table's net " + of_readout;
  }
  if (!model.correction) return "";
  const std::string of_correction = NetMisfit(model, *model.correction);
  return of_correction.empty() ? "" : "the correction " + of_correction;
}

}  // namespace hyperserve::kernels
