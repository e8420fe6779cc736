// Random flows for the tests of the fused kernel and of its twin.
#pragma once

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "core/kernels/flow/flow_model.h"

namespace hyperserve::testing {

// Weights and biases uniform in +-gain / sqrt(inputs); a fresh layer has 1.
inline kernels::FlowNet RandomFlowNet(kernels::FlowActivation activation,
                                      std::vector<kernels::FlowInput> inputs,
                                      const std::vector<int>& widths, unsigned seed,
                                      float gain = 2.0f) {
  std::mt19937 random(seed);
  kernels::FlowNet net{.activation = activation, .inputs = std::move(inputs), .layers = {}};
  for (size_t l = 0; l + 1 < widths.size(); ++l) {
    const float bound = gain / std::sqrt(static_cast<float>(widths[l]));
    const auto fill = [&](std::vector<float>& values, int count, float least, float most) {
      std::uniform_real_distribution<float> uniform(least, most);
      for (int i = 0; i < count; ++i) values.push_back(uniform(random));
    };
    kernels::FlowLayer layer;
    layer.outputs = widths[l + 1];
    fill(layer.weight, widths[l] * widths[l + 1], -bound, bound);
    fill(layer.bias, widths[l + 1], -bound, bound);
    if (activation == kernels::FlowActivation::kRectifier) {
      fill(layer.slopes, widths[l + 1], -0.5f, 1.5f);
    }
    net.layers.push_back(std::move(layer));
  }
  return net;
}

}  // namespace hyperserve::testing
