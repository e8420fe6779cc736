// Random convolutional fields for the tests of the fused kernel and of its twin.
#pragma once

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "core/kernels/conv/conv_model.h"

namespace hyperserve::testing {

// Weights and biases uniform in +-gain / sqrt(9 inputs); a fresh layer has 1.
inline kernels::ConvNet RandomConvNet(kernels::ConvActivation activation,
                                      const std::vector<kernels::ConvInput>& inputs,
                                      const kernels::ConvModel& model, std::vector<int> hidden,
                                      unsigned seed, float gain = 2.0f) {
  using kernels::ConvActivation;
  using kernels::ConvInput;
  std::mt19937 random(seed);
  kernels::ConvNet net;
  int before = model.channels;
  hidden.push_back(model.channels);
  for (size_t l = 0; l < hidden.size(); ++l) {
    kernels::ConvLayer layer;
    layer.inputs = l == 0 ? inputs : std::vector<ConvInput>{ConvInput::kBefore};
    layer.outputs = hidden[l];
    int columns = 0;
    for (const ConvInput input : layer.inputs) {
      columns += kernels::ConvChannels(input, model, before);
    }
    const float bound = gain / std::sqrt(9.0f * static_cast<float>(columns));
    const auto fill = [&](std::vector<float>& values, int count, float least, float most) {
      std::uniform_real_distribution<float> uniform(least, most);
      for (int i = 0; i < count; ++i) values.push_back(uniform(random));
    };
    fill(layer.weight, layer.outputs * columns * 9, -bound, bound);
    fill(layer.bias, layer.outputs, -bound, bound);
    if (l + 1 < hidden.size()) {
      layer.activation = activation;
      if (activation == ConvActivation::kRectifier) fill(layer.slopes, layer.outputs, -0.5f, 1.5f);
    }
    before = layer.outputs;
    net.push_back(std::move(layer));
  }
  return net;
}

// A softplus field, and a rectifier correction that reads state, slope_1 and step.
inline kernels::ConvModel RandomConvModel(int channels, int height, int width,
                                          const std::vector<int>& field_hidden,
                                          const std::vector<int>& correction_hidden,
                                          unsigned seed) {
  using kernels::ConvActivation;
  using kernels::ConvInput;
  kernels::ConvModel model{.channels = channels, .height = height, .width = width};
  model.field =
      RandomConvNet(ConvActivation::kSoftplus, {ConvInput::kBefore}, model, field_hidden, seed);
  model.correction = RandomConvNet(ConvActivation::kRectifier,
                                   {ConvInput::kBefore, ConvInput::kSlope1, ConvInput::kStep},
                                   model, correction_hidden, seed + 1);
  return model;
}

}  // namespace hyperserve::testing
