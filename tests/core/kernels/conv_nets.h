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

// A table near Euler steps.
inline kernels::ConvTable RandomConvTable(int channels, int evaluations, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> noise(-0.2f, 0.2f);
  kernels::ConvTable table;
  const float eps = 1.0f / static_cast<float>(evaluations);
  const auto fill = [&](float diagonal) {
    for (int i = 0; i < channels * channels; ++i) {
      const float of_map = noise(random) / std::sqrt(static_cast<float>(channels));
      table.coefficients.push_back(diagonal * (of_map + (i % (channels + 1) == 0 ? 1.0f : 0.0f)));
    }
  };
  for (int i = 0; i < evaluations; ++i) {
    table.nodes.push_back((i + 0.25) * eps);
    fill(1.0f);
    for (int j = 0; j <= i; ++j) fill(eps);
    for (int k = 0; k < channels; ++k) table.offset.push_back(noise(random));
  }
  return table;
}

// A readout of a table of so many evaluations, that reads everything. `widths`: of its first layer
// and of those of 3x3.
inline kernels::ConvReadout RandomConvReadout(int channels, int evaluations,
                                              const std::vector<int>& widths, int scale,
                                              unsigned seed) {
  using kernels::ConvInput;
  std::mt19937 random(seed);
  const auto fill = [&](std::vector<float>& values, int count, int inputs) {
    const float bound = 2.0f / std::sqrt(static_cast<float>(inputs));
    std::uniform_real_distribution<float> uniform(-bound, bound);
    for (int i = 0; i < count; ++i) values.push_back(uniform(random));
  };
  kernels::ConvReadout readout{
      .inputs = {ConvInput::kState0, ConvInput::kSlopes, ConvInput::kBefore},
      .scale = scale,
      .hidden = widths[0]};
  const int inputs = channels * (evaluations + 2) * readout.parts();
  fill(readout.down, widths[0] * inputs, inputs);
  fill(readout.down_bias, widths[0], 4);
  for (size_t i = 1; i < widths.size(); ++i) {
    const kernels::ConvModel before{.channels = widths[i - 1]};
    readout.middle.push_back(RandomConvNet(kernels::ConvActivation::kSilu, {ConvInput::kBefore},
                                           before, {widths[i]},
                                           seed + static_cast<unsigned>(i))[0]);
  }
  const int ups = channels * readout.parts();
  fill(readout.up, ups * widths.back(), widths.back());
  fill(readout.up_bias, ups, 4);
  return readout;
}

// One at half the resolution, with so many layers of 3x3.
inline kernels::ConvReadout RandomConvReadout(int channels, int evaluations, int hidden, int middle,
                                              unsigned seed) {
  return RandomConvReadout(channels, evaluations,
                           std::vector<int>(static_cast<size_t>(middle) + 1, hidden), 2, seed);
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
