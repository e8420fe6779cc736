// An MLP flow and a fixed plan on it, as plain data: what the fused kernel (flow.h) and its
// readable twin (flow_twin.h) both take.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "core/ode/tableau.h"

namespace hyperserve::kernels {

// kRectifier: max(x, 0) + slope min(x, 0); ReLU where the slopes are zero.
enum class FlowActivation : uint8_t { kSoftplus, kTanh, kSilu, kRectifier };

// Of the products and activations of a packed flow: fp16 operands, or each as a high and a low
// half.
enum class FlowPrecision : uint8_t { kFast, kExact };

// In tier fast the kernel computes softplus(x) from 2^-(kFlowSoftplusRate log2(e) |x|)
// (activations.cuh).
inline constexpr double kFlowSoftplusRate = 0.988;

inline constexpr int kFlowTangents = 2;

// What a net reads, concatenated in the order listed. State: where f or g is evaluated; slopes: of
// the stages 1 and 2; state_0: at the start of the solve; step: eps; depth: s. A field reads state
// and, perhaps, depth.
// Readouts of tables read kSlopes, which are all slopes of the table.
enum class FlowInput : uint8_t { kState, kSlope1, kSlope2, kState0, kStep, kDepth, kSlopes };

// y = W x + b.
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
  int slopes = 0;  // of kSlopes
};

// The coefficients of a whole solve with n evaluations of f (core/ode/solver_table.h), as matrices
// [dimensions, dimensions], row-major.
struct FlowTable {
  std::vector<double> nodes;        // s_i
  std::vector<float> coefficients;  // a_0, B_00, a_1, B_10, B_11, ...
  std::vector<float> offset;        // [n, dimensions]
  int evaluations() const { return static_cast<int>(nodes.size()); }
};

// Owns its numbers. Weights are rounded to float32 already.
struct FlowModel {
  int dimensions = 0;  // of the state
  FlowNet field;
  std::optional<FlowNet> correction;  // g; with a table its readout
  std::optional<FlowTable> table;
};

// The logarithm of how much a solve stretches volume. kDivergence: the integral of tr(df/dz) by the
// plan's method; kStepMap: log|det| of the Jacobian of the discrete map.
enum class FlowDensity : uint8_t { kNone, kDivergence, kStepMap };

// K equal steps on [s0, s1]; `against`: of -f(s0 + s1 - s, z). A model with a table is solved by
// the table instead of tableau and steps.
struct FlowPlan {
  Tableau tableau = kEulerTableau;
  int steps = 1;
  bool hypersolved = false;  // the model has a correction
  bool against = false;
  double s0 = 0.0, s1 = 1.0;
  // kDivergence only where not hypersolved. Of at most kFlowTangents dimensions.
  FlowDensity density = FlowDensity::kNone;
  bool to_data = true;  // z(s0) is the noise, else z(s1) is
};

// A solve on [s0, s1] under error control, each row with its own steps.
struct FlowAdaptivePlan {
  Tableau tableau = kDopri5Tableau;  // embedded and first same as last
  bool against = false;
  double s0 = 0.0, s1 = 1.0;
  double rtol = 1e-5, atol = 1e-5;
  int64_t attempts_max = 1000;  // steps of a row, accepted or refused
};

using FlowTask = std::variant<FlowPlan, FlowAdaptivePlan>;

}  // namespace hyperserve::kernels
