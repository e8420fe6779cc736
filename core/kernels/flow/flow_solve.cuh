// The steps of a solve on the 16 rows of a warp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/kernels/flow/flow_dual.cuh"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {

// A plan as the kernel wants it: everything times eps that can be.
struct FlowSteps {
  int steps, stages;
  bool hypersolved;
  FlowDensity density;
  // The tangents start again with each step, so that they lose no digits.
  bool restarts_tangents;
  bool to_data;                     // of FlowPlan
  float a[kStagesMax][kStagesMax];  // eps a_ij
  float b[kStagesMax];              // eps b_j
  float g;                          // eps^(p + 1)
  float c[kStagesMax];              // eps c_i
  float eps, s0;                    // of the solver's clock
  float field_s0, sign;             // the field's clock starts at field_s0 and runs with `sign`
};

// With kTangents a solver has the log-density of its plan too.
enum class FlowSolveKind { kValues, kTangents };

template <FlowSolveKind kKind, FlowActivation kActivation, int kWidth, int kOutputs>
class FlowSolver {
  static constexpr bool kTangents = kKind == FlowSolveKind::kTangents;
  template <FlowActivation kOf>
  using NetOf = std::conditional_t<kTangents, FlowDualDevice<kOf, kWidth>,
                                   FlowNetDevice<kOf, kWidth, kOutputs>>;

 public:
  using Net = NetOf<kActivation>;
  using Vector = typename Net::Vector;
  using Vectors = typename Net::Vectors;
  using State = typename Net::State;

  __device__ __forceinline__ FlowSolver(const FlowLayout& layout, const FlowSteps& plan,
                                        Vectors vectors)
      : layout_(layout), plan_(plan), vectors_(vectors) {}

  // z(s1) from z(s0), and what the solve adds to the log-density; `unfit` as
  // FlowNetDevice::Evaluate.
  __device__ __forceinline__ State Solve(const Vector& z0, uint32_t& unfit) {
    State z = Net::StateOf(z0);
    Net::Store(vectors_, kSlotState0, z);
#pragma unroll 1
    for (int k = 0; k < plan_.steps; ++k) {
      z = Step(k, z, unfit);
      if constexpr (kTangents) EndStep(k, z);
    }
    return z;
  }

 private:
  __device__ __forceinline__ State Step(int k, const State& z, uint32_t& unfit) {
    const float passed = static_cast<float>(k) * plan_.eps;
    State next = z;
#pragma unroll 1
    for (int i = 0; i < plan_.stages; ++i) {
      State x = z;
#pragma unroll 1
      for (int j = 0; j < i; ++j) x.Add(plan_.a[i][j], Net::Load(vectors_, kSlotSlope1 + j));
      const float depth = fmaf(plan_.sign, passed + plan_.c[i], plan_.field_s0);
      const State slope = Field(depth, x, unfit);
      Net::Store(vectors_, kSlotSlope1 + i, slope);
      next.Add(plan_.b[i], slope);
    }
    if (plan_.hypersolved) next.Add(plan_.g, Correction(plan_.s0 + passed, z, unfit));
    return next;
  }

  __device__ __forceinline__ State Field(float depth, State& x, uint32_t& unfit) {
    if constexpr (kTangents) {
      if (plan_.density == FlowDensity::kDivergence) SetUnitTangents(x);
    }
    State slope;
    slope.Add(plan_.sign,
              Net::Evaluate(layout_.field, x, {vectors_, plan_.eps, {depth, depth}}, sums_, unfit));
    if constexpr (kTangents) {
      if (plan_.density == FlowDensity::kDivergence) TakeDivergence(slope);
    }
    return slope;
  }

  __device__ __forceinline__ State Correction(float depth, const State& z, uint32_t& unfit) {
    using Rectified = NetOf<FlowActivation::kRectifier>;
    if (layout_.correction_activation == FlowActivation::kRectifier) {
      return Rectified::Evaluate(layout_.correction, z, {vectors_, plan_.eps, {depth, depth}},
                                 sums_, unfit);
    }
    if constexpr (kActivation != FlowActivation::kRectifier) {
      return Net::Evaluate(layout_.correction, z, {vectors_, plan_.eps, {depth, depth}}, sums_,
                           unfit);
    }
    return {};
  }

  __device__ __forceinline__ void EndStep(int k, State& z) const {
    if (plan_.density != FlowDensity::kStepMap) return;
    if (!plan_.restarts_tangents && k + 1 < plan_.steps) return;
    AddLogDeterminant(z);
    SetUnitTangents(z);
  }

  const FlowLayout& layout_;
  const FlowSteps& plan_;
  Vectors vectors_;
  typename Net::LayerSums sums_ = {};
};

}  // namespace hyperserve::kernels
