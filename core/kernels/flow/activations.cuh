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
// cubic in u without a constant is closest on the mean (normal x) where r = kFlowSoftplusRate: off
// by 1.6e-4 in units of log2, at most 4.6e-4.
template <>
struct ActivationOf<FlowActivation::kSoftplus> {
  static constexpr bool kSlopes = false;
  static __device__ __forceinline__ float Apply(float x, float) { return Above(x, x + fabsf(x)); }
  // Of the last hidden layer: less kFlowSoftplusShift.
  static __device__ __forceinline__ float ApplyLast(float x) {
    return Above(x, x + fabsf(x) - static_cast<float>(kFlowSoftplusShift));
  }
  static __device__ __forceinline__ float Above(float x, float base) {
    constexpr float kScale = static_cast<float>(2.0 * kFlowSoftplusRate);
    const float u = Exp2(-fabsf(x));
    const float p =
        fmaf(fmaf(0.1231413f * kScale, u, -0.50557687f * kScale), u, 1.38289181f * kScale);
    return fmaf(p, u, base);
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

// What layers that follow read of hidden numbers.
enum class FlowReader { kSquare, kLast };

template <class Act, FlowReader kReader>
__device__ __forceinline__ float ActivatedFor(float x, float slope) {
  if constexpr (kReader == FlowReader::kLast && requires { Act::ApplyLast(x); }) {
    return Act::ApplyLast(x);
  }
  return Act::Apply(x, slope);
}

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
