// The kernel of a fused convolutional solve: an image to a block, or to a cluster of blocks that
// have some of its rows each.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/kernels/conv/conv_products.cuh"
#include "core/kernels/conv/conv_rows.h"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {

// The tableau times eps.
struct ConvSteps {
  int steps, stages, hypersolved;
  float a[kStagesMax + 1][kStagesMax];  // row `stages`: b
  float c[kStagesMax];
  float g, eps, s0;
};

struct ConvLaunch {
  ConvLayout layout;
  const uint4* image;
  ConvSteps steps;
  ConvGeometry geometry;
  ConvRows rows;
};

// max(x, 0) + log(1 + u), u = e^-|x|, the logarithm from 2^-(0.988 log2(e) |x|) by a cubic (see
// core/kernels/flow/activations.cuh): off by 2.2e-4 at most.
__device__ __forceinline__ float SoftplusFast(float x) {
  float u;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(u) : "f"(fabsf(x) * -1.42538256f));
  return fmaf(fmaf(fmaf(0.0883404427f, u, -0.357302109f), u, 0.962316569f), u, fmaxf(x, 0.0f));
}

class ConvSolver {
 public:
  explicit __device__ ConvSolver(const ConvLaunch& launch)
      : launch_(launch), planes_(launch.layout, launch.geometry) {}

  __device__ __forceinline__ void Run() {
    planes_.Clear();
    if (ConvPlanes::Group() == kConvGroups - 1) PassTurn();
    planes_.MakeArrivals(planes_.end() + 2 * launch_.layout.layer_bytes);
    Fetch(0, 0);
    planes_.AwaitBlocks();
    const int solvers = static_cast<int>(gridDim.x) / launch_.geometry.blocks;
    for (int64_t row = blockIdx.x / launch_.geometry.blocks; row < launch_.rows.count;
         row += solvers)
      Solve(row);
    AwaitFetch();
    if (ConvPlanes::Group() == 0) AwaitTurn();
  }

 private:
  __device__ __forceinline__ void Solve(int64_t row) {
    const int64_t elements = Elements();
    z0_ = launch_.rows.z0 + row * elements;
    z1_ = launch_.rows.z1 + row * elements;
    planes_.StartRow();
    if (planes_.rank() == 0 && threadIdx.x == 0) launch_.rows.unfit[row] = 0;
    Start<32>();
    for (step_ = 0; step_ < launch_.steps.steps; ++step_) {
      const float s = fmaf(static_cast<float>(step_), launch_.steps.eps, launch_.steps.s0);
      stage_ = 0;
      for (int layer = 0; layer >= 0;) {
        const int after = LayerAfter(layer);
        RunLayer(layer, after < 0 ? 0 : after,
                 stage_ < launch_.steps.stages ? s + launch_.steps.c[stage_] : s);
        if (layer + 1 == launch_.layout.field_layers) ++stage_;
        layer = after;
      }
    }
    if (!planes_.Fits()) launch_.rows.unfit[row] = 1;
  }

  __device__ __forceinline__ void RunLayer(int layer, int after, float depth) {
    const bool ends =
        layer + 1 == launch_.layout.field_layers || layer + 1 == launch_.layout.layers_count;
    if (ends) return Layer<32, true>(layer, after, depth);
    switch (launch_.layout.layers[layer].outputs) {
      case 32:
        return Layer<32, false>(layer, after, depth);
      case 48:
        return Layer<48, false>(layer, after, depth);
      default:
        return Layer<64, false>(layer, after, depth);
    }
  }

  // Within a step; -1: its end.
  __device__ __forceinline__ int LayerAfter(int layer) const {
    if (layer + 1 == launch_.layout.field_layers) {
      if (stage_ + 1 < launch_.steps.stages) return 0;
      return launch_.steps.hypersolved ? layer + 1 : -1;
    }
    return layer + 1 == launch_.layout.layers_count ? -1 : layer + 1;
  }

  // The state at the start of the solve goes into the planes.
  template <int kOutputs>
  __device__ __forceinline__ void Start() {
    const int aside = launch_.layout.aside_first[kAsideState0] >= 0 ? kAsideState0 : kBefore;
    planes_.AwaitReads();  // the rows of the image before have arrived everywhere
    for (int tile = ConvPlanes::Group(); tile < launch_.geometry.tiles; tile += kConvGroups) {
      PixelSums<kOutputs> z;
      uint32_t packed[kOutputs / 4];
      planes_.Read(z0_, tile, z);
      ConvPlanes::Save(Vector(0), tile, z);
      PackState(z, packed);
      if (aside != kBefore) planes_.Write<kOutputs>(aside, tile, packed);
      planes_.Write<kOutputs>(kBefore, tile, packed);
    }
    AwaitFetch();
    planes_.AwaitWrites(kOutputs, aside);
  }

  template <int kOutputs, bool kEnds>
  __device__ __forceinline__ void Layer(int index, int after, float depth) {
    const ConvLayerLayout& layer = launch_.layout.layers[index];
    const uint32_t weights = planes_.end() + turn_ * launch_.layout.layer_bytes;
    const float* numbers = reinterpret_cast<const float*>(
        reinterpret_cast<const char*>(conv_shared) + (weights - planes_.before()) + layer.bias);
    Fetch(after, turn_ ^ 1);
    const int tiles = launch_.geometry.tiles;
    const int turns = (tiles + kConvGroups - 1) / kConvGroups;
    uint32_t packed[kGroupTiles][kOutputs / 4] = {};
    // Loops that are not unrolled: the code must fit into the instruction cache.
#pragma unroll 1
    for (int t = 0, tile = ConvPlanes::Group(); t < turns; ++t, tile += kConvGroups) {
      if (tile >= tiles) {
        AwaitTurn();
        PassTurn();
        continue;
      }
      uint32_t pairs[kOutputs / 4];
      PixelSums<kOutputs> z;
      if constexpr (kEnds) ConvPlanes::Load(Vector(0), tile, z);  // on its way beside the products
      PixelSums<kOutputs> sums;
      AwaitTurn();
      Multiply(layer, weights, tile, sums);
      PassTurn();
      AwaitPixelSums(sums);
      AddBias(layer, numbers, depth, tile, sums);
      if constexpr (kEnds) {
        End(tile, sums, z, pairs);
      } else {
        Activate(layer, numbers, sums, pairs);
      }
      Keep(t, pairs, packed);
    }
    AwaitFetch();
    planes_.AwaitReads();
    turn_ ^= 1;
#pragma unroll 1
    for (int t = 0, tile = ConvPlanes::Group(); tile < tiles; ++t, tile += kConvGroups) {
      uint32_t pairs[kOutputs / 4];
      Take(t, packed, pairs);
      planes_.Write<kOutputs>(kBefore, tile, pairs);
    }
    planes_.AwaitWrites(kOutputs, kEnds ? AsideOfStage() : kBefore);
  }

  // Warpgroups start their products one after the other, so that one activates sums while the next
  // has the tensor cores. Every group takes every turn. Named barriers from 1 on, one for a group.
  static __device__ __forceinline__ void AwaitTurn() {
    asm volatile("bar.sync %0, 256;" ::"r"(1 + ConvPlanes::Group()) : "memory");
  }
  static __device__ __forceinline__ void PassTurn() {
    asm volatile("bar.arrive %0, 256;" ::"r"(1 + (ConvPlanes::Group() + 1) % kConvGroups)
                 : "memory");
  }

  // kept[t] = pairs and pairs = kept[t], in registers: their numbers must be constants.
  template <int kPairs>
  static __device__ __forceinline__ void Keep(int t, const uint32_t (&pairs)[kPairs],
                                              uint32_t (&kept)[kGroupTiles][kPairs]) {
#pragma unroll
    for (int i = 0; i < kGroupTiles; ++i) {
#pragma unroll
      for (int k = 0; k < kPairs; ++k) kept[i][k] = i == t ? pairs[k] : kept[i][k];
    }
  }
  template <int kPairs>
  static __device__ __forceinline__ void Take(int t, const uint32_t (&kept)[kGroupTiles][kPairs],
                                              uint32_t (&pairs)[kPairs]) {
#pragma unroll
    for (int k = 0; k < kPairs; ++k) pairs[k] = kept[0][k];
#pragma unroll
    for (int i = 1; i < kGroupTiles; ++i) {
#pragma unroll
      for (int k = 0; k < kPairs; ++k) pairs[k] = i == t ? kept[i][k] : pairs[k];
    }
  }

  template <int kOutputs>
  __device__ __forceinline__ void Multiply(const ConvLayerLayout& layer, uint32_t weights, int tile,
                                           PixelSums<kOutputs>& sums) const {
    const int steps = layer.steps_before + layer.steps_aside;
    const uint32_t plane = launch_.geometry.plane_bytes, columns = 2 * steps;  // of tiles
    const ConvOperands operands(planes_.before(), plane, weights, columns * 128);
    const uint32_t aside = (planes_.aside(0) - planes_.before()) / 16;
    const uint32_t tap_move = kOutputs / 8 * columns * 8;
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      sums.v[i][0] = sums.v[i][1] = sums.v[i][2] = sums.v[i][3] = 0.0f;
    }
#pragma unroll 1
    for (int k = 0; k < steps; ++k) {
      const int over = k - layer.steps_before;  // from 0 on: a step of what stands aside
      const uint32_t first =
          tile * kTilePixels + (over < 0 ? k * (plane / 8) : aside + over * (plane / 8));
      BeginPixelSums(sums);
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
        AddStep(sums, operands, first + tap / 3 * launch_.geometry.pitch + tap % 3,
                tap * tap_move + k * 16);
      }
      EndPixelSums();
    }
  }

  template <int kOutputs>
  __device__ __forceinline__ void AddBias(const ConvLayerLayout& layer, const float* numbers,
                                          float depth, int tile, PixelSums<kOutputs>& sums) const {
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      const float2 bias = PairOf(numbers, i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        sums.v[i][2 * h] += bias.x;
        sums.v[i][2 * h + 1] += bias.y;
      }
    }
    if (!layer.constants) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* step = numbers + (2 + planes_.BorderClass(tile, h)) * kOutputs;
#pragma unroll
      for (int i = 0; i < kOutputs / 8; ++i) {
        const float2 of_step = PairOf(step, i);
        const float2 of_depth = PairOf(step + kConvBorderClasses * kOutputs, i);
        float(&v)[4] = sums.v[i];
        v[2 * h] += fmaf(launch_.steps.eps, of_step.x, depth * of_depth.x);
        v[2 * h + 1] += fmaf(launch_.steps.eps, of_step.y, depth * of_depth.y);
      }
    }
  }

  template <int kOutputs>
  __device__ __forceinline__ void Activate(const ConvLayerLayout& layer, const float* numbers,
                                           PixelSums<kOutputs>& sums,
                                           uint32_t (&packed)[kOutputs / 4]) const {
    if (layer.activation == ConvActivation::kSoftplus) {
#pragma unroll
      for (int i = 0; i < kOutputs / 8; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          packed[2 * i + h] =
              PackPair(SoftplusFast(sums.v[i][2 * h]), SoftplusFast(sums.v[i][2 * h + 1]));
        }
      }
      return;
    }
    const bool rectifies = layer.activation == ConvActivation::kRectifier;
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      const float2 slope = rectifies ? PairOf(numbers + kOutputs, i) : make_float2(1.0f, 1.0f);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float x = sums.v[i][2 * h], y = sums.v[i][2 * h + 1];
        packed[2 * i + h] = PackPair(x > 0.0f ? x : slope.x * x, y > 0.0f ? y : slope.y * y);
      }
    }
  }

  // What this stage's slope is aside; kBefore: nothing.
  __device__ __forceinline__ int AsideOfStage() const {
    const bool read = stage_ < 2 && stage_ < launch_.steps.stages &&
                      launch_.layout.aside_first[kAsideSlope1 + stage_] >= 0;
    return read ? kAsideSlope1 + stage_ : kBefore;
  }

  // A vector of the state's size: the state itself, then the slopes of the stages before the last.
  __device__ __forceinline__ float4* Vector(int index) const {
    return static_cast<float4*>(launch_.rows.scratch) +
           (static_cast<int64_t>(blockIdx.x) * launch_.steps.stages + index) * (kVectorFloats / 4);
  }

  // sums: of this stage's slope, or of g. z: the state. pairs: the state where f or g is evaluated
  // next.
  template <int kOutputs>
  __device__ __forceinline__ void End(int tile, PixelSums<kOutputs>& sums, PixelSums<kOutputs>& z,
                                      uint32_t (&pairs)[kOutputs / 4]) {
    const ConvSteps& steps = launch_.steps;
    const bool corrects = stage_ == steps.stages, last = stage_ + 1 >= steps.stages;
    const int aside = AsideOfStage();
    if (aside != kBefore) {
      PackState(sums, pairs);
      planes_.Write<kOutputs>(aside, tile, pairs);
    }
    const bool before_g = stage_ + 1 == steps.stages && steps.hypersolved;
    if (before_g) PackState(z, pairs);
#pragma unroll 1
    for (int j = 0; !corrects && j < stage_; ++j) {
      PixelSums<kOutputs> slope;
      ConvPlanes::Load(Vector(1 + j), tile, slope);
      AddScaled(steps.a[stage_ + 1][j], slope, z);
    }
    AddScaled(corrects ? steps.g : steps.a[stage_ + 1][stage_], sums, z);
    if (!before_g) PackState(z, pairs);
    if (last) {
      ConvPlanes::Save(Vector(0), tile, z);
    } else {
      ConvPlanes::Save(Vector(1 + stage_), tile, sums);
    }
    if (last && !before_g && step_ + 1 == steps.steps) planes_.Store(z1_, tile, z);
  }

  template <int kOutputs>
  static __device__ __forceinline__ void AddScaled(float scale, const PixelSums<kOutputs>& x,
                                                   PixelSums<kOutputs>& y) {
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) y.v[i][k] = fmaf(scale, x.v[i][k], y.v[i][k]);
    }
  }

  template <int kOutputs>
  static __device__ __forceinline__ void PackState(const PixelSums<kOutputs>& z,
                                                   uint32_t (&packed)[kOutputs / 4]) {
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      packed[2 * i] = PackPair(z.v[i][0], z.v[i][1]);
      packed[2 * i + 1] = PackPair(z.v[i][2], z.v[i][3]);
    }
  }

  // Starts copying a layer's weights.
  __device__ __forceinline__ void Fetch(int index, uint32_t turn) const {
    const ConvLayerLayout& layer = launch_.layout.layers[index];
    const uint4* from = launch_.image + layer.offset / 16;
    const uint32_t to = planes_.end() + turn * launch_.layout.layer_bytes;
    for (uint32_t i = threadIdx.x; i < layer.bytes / 16; i += kConvThreads) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i * 16), "l"(from + i)
                   : "memory");
    }
  }

  static __device__ __forceinline__ void AwaitFetch() {
    asm volatile("cp.async.wait_all;" ::: "memory");
  }

  static __device__ __forceinline__ float2 PairOf(const float* numbers, int i) {
    return *reinterpret_cast<const float2*>(numbers + 8 * i + 2 * (ConvPlanes::Lane() % 4));
  }

  __device__ __forceinline__ int Elements() const {
    return launch_.layout.channels * launch_.layout.height * launch_.layout.width;
  }

  const ConvLaunch& launch_;
  ConvPlanes planes_;
  uint32_t turn_ = 0;  // the weights in use
  int step_ = 0, stage_ = 0;
  const float* z0_ = nullptr;
  float* z1_ = nullptr;
};

__global__ void __launch_bounds__(kConvThreads, 1)
    ConvKernel(const __grid_constant__ ConvLaunch launch) {
  ConvSolver(launch).Run();
}

}  // namespace hyperserve::kernels
