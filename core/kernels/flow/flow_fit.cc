#include "core/kernels/flow/flow_fit.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "core/kernels/flow/flow_twin.h"

namespace hyperserve::kernels {
namespace {

// A hidden number is fp16 in the kernel; half its range leaves room for rounding.
constexpr double kHiddenMax = 32752.0;
// Weights and biases are fp16, too, scaled by less than three.
constexpr float kWeightMax = 16384.0f;
constexpr float kInputMaxMost = 32768.0f;
// A net whose inputs must be smaller than this does not fit: normals of 24 bits stay below six.
constexpr float kInputMaxLeast = 8.0f;
// At -1 a rectifier is |x|, which the kernel's form of it cannot say. A slope scales the weights
// behind it by half of one more.
constexpr float kSlopeLeast = -0.75f, kSlopeMost = 5.0f;

struct Interval {
  double low, high;
};

// Where an activation's numbers lie. All are monotonous but for silu, whose least is -0.279, and
// rectifiers, which turn at zero.
Interval ActivationOf(FlowActivation activation, double slope, Interval x) {
  const double a = TwinActivation(activation, x.low, slope);
  const double b = TwinActivation(activation, x.high, slope);
  const double turn = activation == FlowActivation::kSilu        ? -0.279
                      : activation == FlowActivation::kRectifier ? 0.0
                                                                 : a;
  return {std::fmin(std::fmin(a, b), turn), std::fmax(std::fmax(a, b), turn)};
}

Interval SumOf(const FlowLayer& layer, size_t unit, const std::vector<Interval>& x) {
  const double bias = layer.bias.empty() ? 0.0 : layer.bias[unit];
  Interval sum{bias, bias};
  for (size_t j = 0; j < x.size(); ++j) {
    const double w = layer.weight[unit * x.size() + j];
    sum.low += w * (w > 0.0 ? x[j].low : x[j].high);
    sum.high += w * (w > 0.0 ? x[j].high : x[j].low);
  }
  return sum;
}

// Does every hidden number, as the kernel scales it, stay in range while no input is larger than
// `input_max`?
bool HiddenFits(const FlowNet& net, int dimensions, FlowPrecision precision, double input_max) {
  std::vector<Interval> x(static_cast<size_t>(FlowInputWidth(net, dimensions)),
                          {-input_max, input_max});
  for (size_t l = 0; l + 1 < net.layers.size(); ++l) {
    const FlowLayer& layer = net.layers[l];
    std::vector<Interval> y(static_cast<size_t>(layer.outputs));
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = ActivationOf(net.activation, FlowSlope(layer, i), SumOf(layer, i, x));
      const double largest = std::fmax(std::fabs(y[i].low), std::fabs(y[i].high));
      if (largest * FlowScaleOf(precision, net.activation, layer, i).out > kHiddenMax) return false;
    }
    x = std::move(y);
  }
  return true;
}

// Written so that what is not a number is out of range.
bool InRange(const std::vector<float>& values, float least, float most) {
  return std::all_of(values.begin(), values.end(),
                     [&](float value) { return value >= least && value <= most; });
}

// With `inputs` of the layer.
std::string LayerMisfit(const FlowLayer& layer, int inputs) {
  if (layer.outputs < 1 || layer.outputs > kFlowWidthMax) {
    return "has a layer of width " + std::to_string(layer.outputs) +
           "; the fused kernel takes 1 to " + std::to_string(kFlowWidthMax);
  }
  const size_t outputs = static_cast<size_t>(layer.outputs);
  if (layer.weight.size() != outputs * static_cast<size_t>(inputs) ||
      (!layer.bias.empty() && layer.bias.size() != outputs) ||
      (!layer.slopes.empty() && layer.slopes.size() != outputs)) {
    return "has layers that do not fit each other";
  }
  if (!InRange(layer.weight, -kWeightMax, kWeightMax) ||
      !InRange(layer.bias, -kWeightMax, kWeightMax)) {
    return "has a weight or bias beyond " + std::to_string(kWeightMax) +
           ", the fused kernel's limit";
  }
  if (!InRange(layer.slopes, kSlopeLeast, kSlopeMost)) {
    return "has a rectifier's slope below " + std::to_string(kSlopeLeast) + " or beyond " +
           std::to_string(kSlopeMost) + ", the fused kernel's limits";
  }
  return "";
}

std::string NetMisfit(const FlowNet& net, const std::string& who, int dimensions) {
  const size_t layers = net.layers.size();
  if (layers < 2 || layers > kFlowLayersMax) {
    return who + " has " + std::to_string(layers) + " linear layers; the fused kernel takes 2 to " +
           std::to_string(kFlowLayersMax);
  }
  for (const FlowInput input : net.inputs) {
    if (std::count(net.inputs.begin(), net.inputs.end(), input) > 1) {
      return who + " reads one input twice; the fused kernel reads each once";
    }
  }
  int inputs = FlowInputWidth(net, dimensions);
  for (const FlowLayer& layer : net.layers) {
    const std::string misfit = LayerMisfit(layer, inputs);
    if (!misfit.empty()) return (who + " ").append(misfit);
    inputs = layer.outputs;
  }
  if (inputs != dimensions) return who + " does not return a state";
  if (FlowInputMax(net, dimensions) < kInputMaxLeast) {
    return who + " has weights so large that fp16 can overflow for inputs below " +
           std::to_string(kInputMaxLeast);
  }
  return "";
}

std::string TableMisfit(const FlowTable& table, int dimensions) {
  const size_t n = table.nodes.size(), size = static_cast<size_t>(dimensions);
  const bool fits =
      table.coefficients.size() == n * (n + 3) / 2 * size * size && table.offset.size() == n * size;
  return fits ? "" : "the table has coefficients that do not fit its evaluations";
}

}  // namespace

FlowScale FlowScaleOf(FlowPrecision precision, FlowActivation activation, const FlowLayer& layer,
                      size_t unit) {
  const bool exact = precision == FlowPrecision::kExact;
  switch (activation) {
    case FlowActivation::kSoftplus: {
      const double rate = (exact ? 1.0 : kFlowSoftplusRate) * std::numbers::log2e;
      return {.in = rate, .out = 2.0 * rate, .shift = exact ? 0.0 : kFlowSoftplusShift};
    }
    case FlowActivation::kSilu:
      if (exact) return {.in = std::numbers::log2e, .out = std::numbers::log2e};
      return {.in = 0.5};
    case FlowActivation::kRectifier:
      return {.out = 2.0 / (1.0 + FlowSlope(layer, unit))};
    case FlowActivation::kTanh:
      return {.in = exact ? 2.0 * std::numbers::log2e : 1.0};
  }
  return {};
}

float FlowInputMax(const FlowNet& net, int dimensions, FlowPrecision precision) {
  float input_max = kInputMaxMost;
  while (input_max >= kInputMaxLeast && !HiddenFits(net, dimensions, precision, input_max)) {
    input_max /= 2.0f;
  }
  return input_max;
}

std::string FlowMisfit(const FlowModel& model) {
  if (model.dimensions < 1 || model.dimensions > kFlowDimensionsMax) {
    return "the state has " + std::to_string(model.dimensions) +
           " dimensions; the fused kernel takes 1 to " + std::to_string(kFlowDimensionsMax);
  }
  for (const FlowInput input : model.field.inputs) {
    if (input != FlowInput::kState && input != FlowInput::kDepth) {
      return "the field reads more than state and depth";
    }
  }
  std::string misfit = NetMisfit(model.field, "the field", model.dimensions);
  if (misfit.empty() && model.correction) {
    misfit = NetMisfit(*model.correction, "the correction", model.dimensions);
    if (misfit.empty() && model.correction->activation != FlowActivation::kRectifier &&
        model.correction->activation != model.field.activation) {
      misfit = "the correction's activation is neither the field's nor a rectifier";
    }
  }
  if (misfit.empty() && model.table) misfit = TableMisfit(*model.table, model.dimensions);
  return misfit;
}

}  // namespace hyperserve::kernels
