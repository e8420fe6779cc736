// What a lane does with the sums of a tile: activations, rounding to fp16, vectors of the state's
// size.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_products.cuh"

namespace hyperserve::kernels {

// Of the state and of what has its size: a lane's part of a tile.
using StateSums = PixelSums<kConvChannelsMax>;
using StatePairs = uint32_t[kConvChannelsMax / 4];

__device__ __forceinline__ uint32_t PackPair(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// max(x, 0) + log(1 + u), u = e^-|x|, the logarithm from 2^-(0.988 log2(e) |x|) by a cubic (see
// core/kernels/flow/activations.cuh): off by 2.2e-4 at most.
__device__ __forceinline__ float SoftplusFast(float x) {
  float u;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(u) : "f"(fabsf(x) * -1.42538256f));
  return fmaf(fmaf(fmaf(0.0883404427f, u, -0.357302109f), u, 0.962316569f), u, fmaxf(x, 0.0f));
}

// x / (1 + e^-x).
__device__ __forceinline__ float SiluFast(float x) {
  float u, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(u) : "f"(x * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + u));
  return x * inverse;
}

// To 2^-11.
__device__ __forceinline__ float TanhFast(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// activate(x) of each number.
template <int kOutputs, class Activate>
__device__ __forceinline__ void PackActivated(const PixelSums<kOutputs>& z,
                                              uint32_t (&packed)[kOutputs / 4],
                                              const Activate& activate) {
#pragma unroll
  for (int i = 0; i < kOutputs / 8; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      packed[2 * i + h] = PackPair(activate(z.v[i][2 * h]), activate(z.v[i][2 * h + 1]));
    }
  }
}

__device__ __forceinline__ void PackSilu(const StateSums& z, StatePairs& packed) {
  PackActivated(z, packed, [](float x) { return SiluFast(x); });
}

__device__ __forceinline__ void AddScaled(float scale, const StateSums& x, StateSums& y) {
#pragma unroll
  for (int i = 0; i < kConvChannelsMax / 8; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) y.v[i][k] = fmaf(scale, x.v[i][k], y.v[i][k]);
  }
}

// kept[t] = pairs and pairs = kept[t], in registers: their numbers must be constants.
template <int kTiles, int kPairs>
__device__ __forceinline__ void KeepPairs(int t, const uint32_t (&pairs)[kPairs],
                                          uint32_t (&kept)[kTiles][kPairs]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int k = 0; k < kPairs; ++k) kept[i][k] = i == t ? pairs[k] : kept[i][k];
  }
}
template <int kTiles, int kPairs>
__device__ __forceinline__ void TakePairs(int t, const uint32_t (&kept)[kTiles][kPairs],
                                          uint32_t (&pairs)[kPairs]) {
#pragma unroll
  for (int k = 0; k < kPairs; ++k) pairs[k] = kept[0][k];
#pragma unroll
  for (int i = 1; i < kTiles; ++i) {
#pragma unroll
    for (int k = 0; k < kPairs; ++k) pairs[k] = i == t ? kept[i][k] : pairs[k];
  }
}

__device__ __forceinline__ void PackState(const StateSums& z, StatePairs& packed) {
#pragma unroll
  for (int i = 0; i < kConvChannelsMax / 8; ++i) {
    packed[2 * i] = PackPair(z.v[i][0], z.v[i][1]);
    packed[2 * i + 1] = PackPair(z.v[i][2], z.v[i][3]);
  }
}

}  // namespace hyperserve::kernels
