// What the fused kernel (flow.h) can run, and how it scales numbers. Host code. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>

#include "core/kernels/flow/flow_model.h"

namespace hyperserve::kernels {

inline constexpr int kFlowDimensionsMax = 8;
inline constexpr int kFlowWidthMax = 128;
inline constexpr int kFlowLayersMax = 6;  // linear layers of a net

// Why the kernel cannot run this model, with value and limit; empty: it can.
std::string FlowMisfit(const FlowModel& model);

// No hidden number leaves fp16 while no input of the net is larger than this: a bound by intervals,
// so that the kernel need look at inputs only.
float FlowInputMax(const FlowNet& net, int dimensions,
                   FlowPrecision precision = FlowPrecision::kFast);

// The kernel's activations take in * x and give out * activation(x) (activations.cuh says why): the
// factors go into the weights.
struct FlowScale {
  double in = 1.0, out = 1.0;
};
FlowScale FlowScaleOf(FlowPrecision precision, FlowActivation activation, const FlowLayer& layer,
                      size_t unit);

// Of the rectifier after a unit.
inline float FlowSlope(const FlowLayer& layer, size_t unit) {
  return layer.slopes.empty() ? 0.0f : layer.slopes[unit];
}

// The numbers that the first layer reads.
inline int FlowInputWidth(const FlowNet& net, int dimensions) {
  int width = 0;
  for (const FlowInput input : net.inputs) {
    const bool constant = input == FlowInput::kStep || input == FlowInput::kDepth;
    width += constant ? 1 : (input == FlowInput::kSlopes ? net.slopes : 1) * dimensions;
  }
  return width;
}

}  // namespace hyperserve::kernels
