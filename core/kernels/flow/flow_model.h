// An MLP flow and a fixed plan on it, as plain data: what the fused kernel (flow.h) and its
// readable twin (flow_twin.h) both take.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/ode/tableau.h"

namespace hyperserve::kernels {

// kRectifier: max(x, 0) + slope min(x, 0); ReLU where the slopes are zero.
enum class FlowActivation : uint8_t { kSoftplus, kTanh, kSilu, kRectifier };

// The fused kernel computes softplus(x) from 2^-(kFlowSoftplusRate log2(e) |x|) (activations.cuh).
inline constexpr double kFlowSoftplusRate = 0.988;

// What a net reads, concatenated in the order listed. State: where f or g is evaluated; slopes: of
// the stages 1 and 2; state_0: at the start of the solve; step: eps; depth: s. A field reads state
// and, perhaps, depth.
enum class FlowInput : uint8_t { kState, kSlope1, kSlope2, kState0, kStep, kDepth };

struct FlowLayer {
  int outputs = 0;
  std::vector<float> weight;  // [outputs, inputs], row-major
  std::vector<float> bias;    // [outputs]; empty: none
  std::vector<float> slopes;  // of the rectifier that follows, [outputs]; empty: zeros
};

// The activation follows every layer but the last.
struct FlowNet {
  FlowActivation activation = FlowActivation::kSoftplus;
  std::vector<FlowInput> inputs;
  std::vector<FlowLayer> layers;
};

struct FlowModel {
  int dimensions = 0;  // of the state
  FlowNet field;
  std::optional<FlowNet> correction;  // g
};

// K equal steps on [s0, s1]; `against`: of -f(s0 + s1 - s, z).
struct FlowPlan {
  Tableau tableau = kEulerTableau;
  int steps = 1;
  bool hypersolved = false;  // the model has a correction
  bool against = false;
  double s0 = 0.0, s1 = 1.0;
};

}  // namespace hyperserve::kernels
