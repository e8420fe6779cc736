// A field of 3x3 convolutions and a fixed plan on it, as plain data: what the fused kernel (conv.h)
// and its readable twin (conv_twin.h) both take.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/ode/tableau.h"

namespace hyperserve::kernels {

// kRectifier: max(x, 0) + slope min(x, 0); ReLU where the slopes are zero.
enum class ConvActivation : uint8_t { kNone, kSoftplus, kRectifier };

// What a layer reads. Before: the layer before it; of a net's first layer, the state where f or g
// is evaluated. Slopes: of the stages 1 and 2; state_0: at the start of the solve; step: eps;
// depth: s; the last two are one channel of a constant each.
enum class ConvInput : uint8_t { kBefore, kSlope1, kSlope2, kState0, kStep, kDepth };

// Stride 1, padding 1.
struct ConvLayer {
  std::vector<ConvInput> inputs;  // concatenated in this order
  int outputs = 0;
  std::vector<float> weight;  // [outputs, inputs, 3, 3]
  std::vector<float> bias;    // [outputs]; empty: none
  ConvActivation activation = ConvActivation::kNone;
  std::vector<float> slopes;  // of a rectifier, [outputs]; empty: zeros
};

using ConvNet = std::vector<ConvLayer>;

// States are [channels, height, width].
struct ConvModel {
  int channels = 0, height = 0, width = 0;
  ConvNet field;
  std::optional<ConvNet> correction;  // g
};

// K equal steps on [s0, s1].
struct ConvPlan {
  Tableau tableau = kEulerTableau;
  int steps = 1;
  bool hypersolved = false;  // the model has a correction
  double s0 = 0.0, s1 = 1.0;
};

// The number of channels of an input; `before`: of the layer before.
inline int ConvChannels(ConvInput input, const ConvModel& model, int before) {
  if (input == ConvInput::kStep || input == ConvInput::kDepth) return 1;
  return input == ConvInput::kBefore ? before : model.channels;
}

}  // namespace hyperserve::kernels
