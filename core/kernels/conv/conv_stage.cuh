// Where a solve by fixed steps of a one-step method is, and what it makes of the sums of a net's
// last layer. What the kernels of such methods share.
#pragma once

#include <cstdint>

#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/kernels/conv/conv_sums.cuh"

namespace hyperserve::kernels {

// Every thread has one. Of the vectors of a block, 0 is the state and the slopes of the stages
// before the last follow.
class ConvStage {
 public:
  // `vectors`: the first of the block's. Functions that take planes take those of the block: were
  // they kept here, they would not stay in registers.
  __device__ ConvStage(const ConvLaunch& launch, float4* vectors)
      : launch_(launch), vectors_(vectors) {}

  __device__ __forceinline__ void StartRow(const ConvPlanes& planes, int64_t row) {
    z0_ = planes.Row(launch_.rows.z0, row);
    z1_ = planes.Row(launch_.rows.z1, row);
    step_ = stage_ = layer_ = 0;
  }

  // Goes on to the next layer; false: there is none in this row, and the first comes again.
  __device__ __forceinline__ bool Advance() {
    const int after = LayerAfter();
    if (layer_ + 1 == launch_.layout.field_layers) ++stage_;
    layer_ = after;
    if (after >= 0) return true;
    layer_ = stage_ = 0;
    return ++step_ < launch_.steps.steps;
  }

  __device__ __forceinline__ int layer() const { return layer_; }

  // The layer after this one within a step; -1: its end.
  __device__ __forceinline__ int LayerAfter() const {
    if (layer_ + 1 == launch_.layout.field_layers) {
      if (stage_ + 1 < launch_.steps.stages) return 0;
      return launch_.steps.hypersolved ? layer_ + 1 : -1;
    }
    return layer_ + 1 == launch_.layout.layers_count ? -1 : layer_ + 1;
  }

  // Is this the last layer of f or of g?
  __device__ __forceinline__ bool EndsNet() const {
    return layer_ + 1 == launch_.layout.field_layers || layer_ + 1 == launch_.layout.layers_count;
  }

  __device__ __forceinline__ float Depth() const {
    const float s = fmaf(static_cast<float>(step_), launch_.steps.eps, launch_.steps.s0);
    return stage_ < launch_.steps.stages ? s + launch_.steps.c[stage_] : s;
  }

  // Where the state at the start of a row stands aside; kBefore: nowhere.
  __device__ __forceinline__ int AsideOfStart() const {
    return launch_.layout.aside_first[kAsideState0] >= 0 ? kAsideState0 : kBefore;
  }

  // What this stage's slope is aside; kBefore: nothing.
  __device__ __forceinline__ int AsideOfStage() const {
    const bool read = stage_ < 2 && stage_ < launch_.steps.stages &&
                      launch_.layout.aside_first[kAsideSlope1 + stage_] >= 0;
    return read ? kAsideSlope1 + stage_ : kBefore;
  }

  // pairs: the state at the start of the row.
  __device__ __forceinline__ void Begin(const ConvPlanes& planes, int tile,
                                        StatePairs& pairs) const {
    StateSums z;
    planes.Read(z0_, tile, z);
    ConvPlanes::Save(vectors_, tile, z);
    PackState(z, pairs);
  }

  __device__ __forceinline__ void LoadState(int tile, StateSums& z) const {
    ConvPlanes::Load(vectors_, tile, z);
  }

  // sums: of this stage's slope, or of g. z: the state. pairs: the state where f or g is evaluated
  // next.
  __device__ __forceinline__ void End(ConvPlanes& planes, int tile, StateSums& sums, StateSums& z,
                                      StatePairs& pairs) const {
    const ConvSteps& steps = launch_.steps;
    const bool corrects = stage_ == steps.stages, last = stage_ + 1 >= steps.stages;
    const int aside = AsideOfStage();
    if (aside != kBefore) {
      PackState(sums, pairs);
      planes.Write<kConvChannelsMax>(aside, tile, pairs);
    }
    const bool before_g = stage_ + 1 == steps.stages && steps.hypersolved;
    if (before_g) PackState(z, pairs);
#pragma unroll 1
    for (int j = 0; !corrects && j < stage_; ++j) {
      StateSums slope;
      ConvPlanes::Load(Vector(1 + j), tile, slope);
      AddScaled(steps.a[stage_ + 1][j], slope, z);
    }
    AddScaled(corrects ? steps.g : steps.a[stage_ + 1][stage_], sums, z);
    if (!before_g) PackState(z, pairs);
    if (last) {
      ConvPlanes::Save(vectors_, tile, z);
    } else {
      ConvPlanes::Save(Vector(1 + stage_), tile, sums);
    }
    if (last && !before_g && step_ + 1 == steps.steps) planes.Store(z1_, tile, z);
  }

 private:
  __device__ __forceinline__ float4* Vector(int index) const {
    return vectors_ + index * (kVectorFloats / 4);
  }

  const ConvLaunch& launch_;
  float4* const vectors_;
  const float* z0_ = nullptr;
  float* z1_ = nullptr;
  int step_ = 0, stage_ = 0, layer_ = 0;
};

}  // namespace hyperserve::kernels
