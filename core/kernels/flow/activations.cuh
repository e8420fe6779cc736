// The activations of both tiers, on sums that the packed weights have scaled (FlowScaleOf says by
// how much).
#pragma once

#include <numbers>

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

// 1 / x, to one unit in the last place.
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// To 2^-22, absolutely where x lies in (0.5, 2).
__device__ __forceinline__ float Log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// kSlopes: Apply and SlopeLessOne, its derivative less one, read their second argument.
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
  // Of r log2(e) y: 2 / (1 + e^-y) = 1 + tanh(y / 2).
  static __device__ __forceinline__ float SlopeLessOne(float x, float) {
    constexpr float kScale = static_cast<float>(0.5 * std::numbers::ln2 / kFlowSoftplusRate);
    return TanhApproximate(kScale * x);
  }
};

template <>
struct ActivationOf<FlowActivation::kTanh> {
  static constexpr bool kSlopes = false;
  static __device__ __forceinline__ float Apply(float x, float) { return TanhApproximate(x); }
  static __device__ __forceinline__ float SlopeLessOne(float x, float) {
    const float y = TanhApproximate(x);
    return -y * y;
  }
};

// Of x / 2: x / (1 + e^-x) = x/2 + x/2 tanh(x/2).
template <>
struct ActivationOf<FlowActivation::kSilu> {
  static constexpr bool kSlopes = false;
  static __device__ __forceinline__ float Apply(float x, float) {
    return fmaf(x, TanhApproximate(x), x);
  }
  static __device__ __forceinline__ float SlopeLessOne(float x, float) {
    const float y = TanhApproximate(x);
    return fmaf(x, fmaf(-y, y, 1.0f), y);
  }
};

// max(x, 0) + s min(x, 0) = (1 + s) / 2 (x + r |x|), r = (1 - s) / (1 + s).
template <>
struct ActivationOf<FlowActivation::kRectifier> {
  static constexpr bool kSlopes = true;
  static __device__ __forceinline__ float Apply(float x, float r) { return fmaf(r, fabsf(x), x); }
  static __device__ __forceinline__ float SlopeLessOne(float x, float r) {
    return x < 0.0f ? -r : r;
  }
};

// Those of tier exact: good to about 3e-7 of numbers near 1, as products of split halves are.
template <FlowActivation kActivation>
struct ExactActivationOf : ActivationOf<kActivation> {};

// Of log2(e) y, twice log2(e) softplus(y).
template <>
struct ExactActivationOf<FlowActivation::kSoftplus> {
  static constexpr bool kSlopes = false;
  static __device__ __forceinline__ float Apply(float x, float) {
    return fmaf(2.0f, Log2(1.0f + Exp2(-fabsf(x))), x + fabsf(x));
  }
};

// Of 2 log2(e) y: 1 - 2 / (1 + e^2y).
template <>
struct ExactActivationOf<FlowActivation::kTanh> {
  static constexpr bool kSlopes = false;
  static __device__ __forceinline__ float Apply(float x, float) {
    return fmaf(-2.0f, Reciprocal(1.0f + Exp2(x)), 1.0f);
  }
};

// Of log2(e) y, log2(e) silu(y).
template <>
struct ExactActivationOf<FlowActivation::kSilu> {
  static constexpr bool kSlopes = false;
  static __device__ __forceinline__ float Apply(float x, float) {
    return x * Reciprocal(1.0f + Exp2(-x));
  }
};

}  // namespace hyperserve::kernels
