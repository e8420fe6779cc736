// The activations of the fast tier, on sums that the packed weights have scaled (flow_image.cc says
// by how much).
#pragma once

#include "core/kernels/flow/flow_model.h"

namespace hyperserve::kernels {

__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// To 2^-11.
__device__ __forceinline__ float TanhApproximate(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// kSlopes: Apply reads its second argument.
template <FlowActivation kActivation>
struct ActivationOf;

// Of r log2(e) x, twice that softplus: 2 max(x, 0) + 2 r log2(1 + u^(1/r)), u = 2^-|x| in (0, 1]. A
// cubic in u without a constant is closest where r = kFlowSoftplusRate: off by 3.1e-4 at most in
// units of log2, half of what rounding to fp16 does to a number near 1.
template <>
struct ActivationOf<FlowActivation::kSoftplus> {
  static constexpr bool kSlopes = false;
  static __device__ __forceinline__ float Apply(float x, float) {
    constexpr float kScale = static_cast<float>(2.0 * kFlowSoftplusRate);
    const float u = Exp2(-fabsf(x));
    const float p =
        fmaf(fmaf(0.127448334f * kScale, u, -0.515477981f * kScale), u, 1.388329431f * kScale);
    return fmaf(p, u, x + fabsf(x));
  }
};

template <>
struct ActivationOf<FlowActivation::kTanh> {
  static constexpr bool kSlopes = false;
  static __device__ __forceinline__ float Apply(float x, float) { return TanhApproximate(x); }
};

// Of x / 2: x / (1 + e^-x) = x/2 + x/2 tanh(x/2).
template <>
struct ActivationOf<FlowActivation::kSilu> {
  static constexpr bool kSlopes = false;
  static __device__ __forceinline__ float Apply(float x, float) {
    return fmaf(x, TanhApproximate(x), x);
  }
};

// max(x, 0) + s min(x, 0) = (1 + s) / 2 (x + r |x|), r = (1 - s) / (1 + s).
template <>
struct ActivationOf<FlowActivation::kRectifier> {
  static constexpr bool kSlopes = true;
  static __device__ __forceinline__ float Apply(float x, float r) { return fmaf(r, fabsf(x), x); }
};

}  // namespace hyperserve::kernels
