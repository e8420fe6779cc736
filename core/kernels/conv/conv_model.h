// A field of 3x3 convolutions and a fixed plan on it, as plain data: what the fused kernel (conv.h)
// and its readable twin (conv_twin.h) both take.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "core/ode/tableau.h"

namespace hyperserve::kernels {

// kRectifier: max(x, 0) + slope min(x, 0); ReLU where the slopes are zero.
enum class ConvActivation : uint8_t { kNone, kSoftplus, kTanh, kSilu, kRectifier };

// What a layer reads. Before: the layer before it; of a net's first layer, the state where f or g
// is evaluated. Slopes: of the stages 1 and 2; state_0: at the start of the solve; step: eps;
// depth: s; the last two are one channel of a constant each. Readouts read kSlopes, which are all
// slopes of the table.
enum class ConvInput : uint8_t { kBefore, kSlope1, kSlope2, kState0, kStep, kDepth, kSlopes };

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

// The coefficients of a whole solve with n evaluations of f (core/ode/solver_table.h), as maps over
// the channels [channels, channels], row-major.
struct ConvTable {
  std::vector<double> nodes;        // s_i
  std::vector<float> coefficients;  // a_0, B_00, a_1, B_10, B_11, ...
  std::vector<float> offset;        // [n, channels]
  int evaluations() const { return static_cast<int>(nodes.size()); }
};

// The net g of a table, at half of the state's resolution or at the state's own. Each activation is
// silu.
struct ConvReadout {
  // kBefore (x_n), kState0 and kSlopes in any order.
  std::vector<ConvInput> inputs;
  int scale = 2;  // 1: at the state's resolution
  int hidden = 0;
  // A convolution of scale x scale with that stride, which silu follows, and its transpose at the
  // end: what pixel_unshuffle before and pixel_shuffle after a 1x1 convolution are.
  std::vector<float> down;                     // [hidden, inputs, scale, scale]
  std::vector<float> down_bias;                // [hidden]
  ConvNet middle;                              // 3x3, the first of `hidden` channels
  std::vector<float> up;                       // [channels, scale, scale, channels before]
  std::vector<float> up_bias;                  // [channels, scale, scale]
  int parts() const { return scale * scale; }  // pixels of the state to one of the net
  int before_up() const { return middle.empty() ? hidden : middle.back().outputs; }
};

// States are [channels, height, width]. A model with a table is solved by the table.
struct ConvModel {
  int channels = 0, height = 0, width = 0;
  ConvNet field;
  std::optional<ConvNet> correction;  // g of one-step methods
  std::optional<ConvTable> table;
  std::optional<ConvReadout> readout;  // g of the table
};

// K equal steps on [s0, s1].
struct ConvPlan {
  Tableau tableau = kEulerTableau;
  int steps = 1;
  bool hypersolved = false;  // the model has a correction
  double s0 = 0.0, s1 = 1.0;
};

// A solve on [s0, s1] under error control, each row with its own steps.
struct ConvAdaptivePlan {
  Tableau tableau = kDopri5Tableau;  // embedded and first same as last
  double s0 = 0.0, s1 = 1.0;
  double rtol = 1e-4, atol = 1e-4;
  int64_t attempts_max = 1000;  // steps of a row, accepted or refused
};

using ConvTask = std::variant<ConvPlan, ConvAdaptivePlan>;

// The number of channels of an input; `before`: of the layer before.
inline int ConvChannels(ConvInput input, const ConvModel& model, int before) {
  if (input == ConvInput::kStep || input == ConvInput::kDepth) return 1;
  return input == ConvInput::kBefore ? before : model.channels;
}

}  // namespace hyperserve::kernels
