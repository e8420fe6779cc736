// The steps of a solve on the 16 rows of a warp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/kernels/flow/flow_dual.cuh"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/flow_table.cuh"
#include "core/kernels/flow/flow_team.cuh"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {

// A plan as the kernel wants it: everything times eps that can be. A table is one step.
struct FlowSteps {
  int steps, stages;
  bool hypersolved;
  FlowDensity density;
  // The tangents start again with each step, so that they lose no digits.
  bool restarts_tangents;
  bool to_data;                               // of FlowPlan
  float weights[kStagesMax + 1][kStagesMax];  // eps a_ij; after the last stage, eps b_j
  float g;                                    // eps^(p + 1)
  float c[kStagesMax];                        // eps c_i
  float eps, s0;                              // of the solver's clock
  float field_s0, sign;  // the field's clock starts at field_s0 and runs with `sign`
};

// With kTangents a solver has the log-density of its plan too; in kTeam the warps of a block share
// 16 rows, which is for few of them.
enum class FlowSolveKind { kValues, kTangents, kTeam };

template <FlowSolveKind kKind, FlowActivation kActivation, int kWidth, int kOutputs>
using FlowDeviceOf = std::conditional_t<
    kKind == FlowSolveKind::kTangents, FlowDualDevice<kActivation, kWidth>,
    std::conditional_t<kKind == FlowSolveKind::kTeam, FlowTeamDevice<kActivation, kWidth, kOutputs>,
                       FlowNetDevice<kActivation, kWidth, kOutputs>>>;

template <FlowSolveKind kKind, FlowActivation kActivation, int kWidth, int kOutputs>
class FlowSolver {
  static constexpr bool kTangents = kKind == FlowSolveKind::kTangents;
  template <FlowActivation kOf>
  using NetOf = FlowDeviceOf<kKind, kOf, kWidth, kOutputs>;

 public:
  using Net = NetOf<kActivation>;
  using Vector = typename Net::Vector;
  using Vectors = typename Net::Vectors;
  using State = typename Net::State;

  __device__ __forceinline__ FlowSolver(const FlowLayout& layout, const FlowSteps& plan,
                                        Vectors vectors)
      : layout_(layout), plan_(plan), table_(layout), vectors_(vectors) {}

  // z(s1) from z(s0); `unfit` as FlowNetDevice::Evaluate.
  __device__ __forceinline__ Vector Solve(const Vector& z0, uint32_t& unfit) {
    const State first = Net::StateOf(z0);
    Net::Store(vectors_, kSlotState0, first);
    Net::Store(vectors_, kSlotState, first);
    if constexpr (kTangents) log_density_ = {};
#pragma unroll 1
    for (int k = 0; k < plan_.steps; ++k) {
      State z = Step(k, unfit);
      if constexpr (kTangents) EndStep(k, z);
      Net::Store(vectors_, kSlotState, z);
    }
    return vectors_.Load(kSlotState);
  }

  // What the last solve stretched: each lane's part of its logarithm.
  __device__ __forceinline__ const LanePart& log_density() const { return log_density_; }

 private:
  // The state at the start of the step stands in shared memory, so that it takes no registers
  // during an evaluation.
  __device__ __forceinline__ State Step(int k, uint32_t& unfit) {
    const float passed = static_cast<float>(k) * plan_.eps;
#pragma unroll 1
    for (int i = 0; i < plan_.stages; ++i) {
      State x = PointAfter(i);
      const float since = by_table() ? table_.Node(i) - plan_.s0 : passed + plan_.c[i];
      const State slope = Field(fmaf(plan_.sign, since, plan_.field_s0), i, x, unfit);
      Net::Store(vectors_, kSlotSlope1 + i, slope);
    }
    State next;
    if (plan_.hypersolved) {
      const State x = by_table() ? PointAfter(plan_.stages) : Net::Load(vectors_, kSlotState);
      const State g = Correction(plan_.s0 + passed, x, unfit);
      next = PointAfter(plan_.stages);
      next.Add(plan_.g, g);
    } else {
      next = PointAfter(plan_.stages);
    }
    return next;
  }

  __device__ __forceinline__ bool by_table() const { return layout_.evaluations >= 0; }

  // Where f is evaluated after so many slopes of a step; after all of them, the end of the step
  // without its correction.
  __device__ __forceinline__ State PointAfter(int slopes) const {
    State x;
    const bool table = by_table() && slopes > 0;
    if (table) {
      Net::AddProduct(table_, slopes - 1, -1, Net::Load(vectors_, kSlotState0), x);
      table_.AddOffset(slopes - 1, Net::ValueIn(x));
    } else {
      x = Net::Load(vectors_, kSlotState);
    }
#pragma unroll 1
    for (int j = 0; j < slopes; ++j) {
      const State slope = Net::Load(vectors_, kSlotSlope1 + j);
      if (table) {
        Net::AddProduct(table_, slopes - 1, j, slope, x);
      } else {
        x.Add(plan_.weights[slopes][j], slope);
      }
    }
    return x;
  }

  // f, as the slope of stage `stage`.
  __device__ __forceinline__ State Field(float depth, int stage, State& x, uint32_t& unfit) {
    const bool divergence = kTangents && plan_.density == FlowDensity::kDivergence;
    if constexpr (kTangents) {
      if (divergence) SetUnitTangents(x);
    }
    State slope;
    slope.Add(plan_.sign,
              Net::Evaluate(layout_.field, x, {vectors_, plan_.eps, {depth, depth}}, sums_, unfit));
    if constexpr (kTangents) {
      if (divergence) AddDivergence(plan_.weights[plan_.stages][stage], slope, log_density_);
    }
    return slope;
  }

  __device__ __forceinline__ State Correction(float depth, const State& z, uint32_t& unfit) {
    if constexpr (kKind == FlowSolveKind::kTeam) {
      return Net::Evaluate(layout_.correction, z, {vectors_, plan_.eps, {depth, depth}}, sums_,
                           unfit, layout_.correction_activation == FlowActivation::kRectifier);
    }
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

  __device__ __forceinline__ void EndStep(int k, State& z) {
    if (plan_.density != FlowDensity::kStepMap) return;
    if (!plan_.restarts_tangents && k + 1 < plan_.steps) return;
    AddLogDeterminant(z, log_density_);
    SetUnitTangents(z);
  }

  const FlowLayout& layout_;
  const FlowSteps& plan_;
  const FlowTableAccess table_;
  Vectors vectors_;
  typename Net::LayerSums sums_ = {};
  LanePart log_density_;
};

}  // namespace hyperserve::kernels
