// The steps of a solve on the 16 rows of a warp.
#pragma once

#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {

// A plan as the kernel wants it: everything times eps that can be.
struct FlowSteps {
  int steps, stages;
  bool hypersolved;
  float a[kStagesMax][kStagesMax];  // eps a_ij
  float b[kStagesMax];              // eps b_j
  float g;                          // eps^(p + 1)
  float c[kStagesMax];              // eps c_i
  float eps, s0;                    // of the solver's clock
  float field_s0, sign;             // the field's clock starts at field_s0 and runs with `sign`
};

template <FlowActivation kActivation, int kWidth, int kOutputs>
class FlowSolver {
 public:
  using Field = FlowNetDevice<kActivation, kWidth, kOutputs>;
  using Vector = typename Field::Vector;
  using Vectors = LaneVectors<Field::kHalves>;

  __device__ __forceinline__ FlowSolver(const FlowLayout& layout, const FlowSteps& plan,
                                        Vectors vectors)
      : layout_(layout), plan_(plan), vectors_(vectors) {}

  // z(s1) from z(s0); `unfit` as FlowNetDevice::Evaluate.
  __device__ __forceinline__ Vector Solve(Vector z, uint32_t& unfit) {
    vectors_.Store(kSlotState0, z);
#pragma unroll 1
    for (int k = 0; k < plan_.steps; ++k) z = Step(k, z, unfit);
    return z;
  }

 private:
  __device__ __forceinline__ Vector Step(int k, const Vector& z, uint32_t& unfit) {
    const float passed = static_cast<float>(k) * plan_.eps;
    Vector next = z;
#pragma unroll 1
    for (int i = 0; i < plan_.stages; ++i) {
      Vector x = z;
#pragma unroll 1
      for (int j = 0; j < i; ++j) x.Add(plan_.a[i][j], vectors_.Load(kSlotSlope1 + j));
      const float depth = fmaf(plan_.sign, passed + plan_.c[i], plan_.field_s0);
      Vector slope;
      slope.Add(plan_.sign,
                Field::Evaluate(layout_.field, x, {vectors_, plan_.eps, depth}, sums_, unfit));
      vectors_.Store(kSlotSlope1 + i, slope);
      next.Add(plan_.b[i], slope);
    }
    if (plan_.hypersolved) next.Add(plan_.g, Correction(plan_.s0 + passed, z, unfit));
    return next;
  }

  __device__ __forceinline__ Vector Correction(float depth, const Vector& z, uint32_t& unfit) {
    using Rectified = FlowNetDevice<FlowActivation::kRectifier, kWidth, kOutputs>;
    if (layout_.correction_activation == FlowActivation::kRectifier) {
      return Rectified::Evaluate(layout_.correction, z, {vectors_, plan_.eps, depth}, sums_, unfit);
    }
    if constexpr (kActivation != FlowActivation::kRectifier) {
      return Field::Evaluate(layout_.correction, z, {vectors_, plan_.eps, depth}, sums_, unfit);
    }
    return {};
  }

  const FlowLayout& layout_;
  const FlowSteps& plan_;
  Vectors vectors_;
  typename Field::Layer sums_ = {};
};

}  // namespace hyperserve::kernels
