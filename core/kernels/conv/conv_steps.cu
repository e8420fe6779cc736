// The kernel of fixed steps of a one-step method, hypersolved or not.
#include <cstdint>

#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_layers.cuh"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/kernels/conv/conv_sums.cuh"

namespace hyperserve::kernels {
namespace {

class ConvStepper {
 public:
  explicit __device__ ConvStepper(const ConvLaunch& launch) : launch_(launch), layers_(launch) {}

  __device__ __forceinline__ void Run() {
    layers_.Prepare();
    layers_.ForRows(0, [&](int64_t row) { Solve(row); });
  }

 private:
  __device__ __forceinline__ void Solve(int64_t row) {
    const int aside = launch_.layout.aside_first[kAsideState0] >= 0 ? kAsideState0 : kBefore;
    const float* z0 = layers_.planes().Row(launch_.rows.z0, row);
    layers_.Fill(aside, [&](int tile, StatePairs& pairs) {
      StateSums z;
      layers_.planes().Read(z0, tile, z);
      ConvPlanes::Save(layers_.Vector(0), tile, z);
      PackState(z, pairs);
    });
    z1_ = layers_.planes().Row(launch_.rows.z1, row);
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
  }

  __device__ __forceinline__ void RunLayer(int layer, int after, float depth) {
    const bool ends =
        layer + 1 == launch_.layout.field_layers || layer + 1 == launch_.layout.layers_count;
    if (!ends) return layers_.RunHidden(layer, after, depth);
    layers_.RunLast(
        layer, after, depth, AsideOfStage(),
        [&](int tile, StateSums& z) { ConvPlanes::Load(layers_.Vector(0), tile, z); },
        [&](int tile, StateSums& sums, StateSums& z, StatePairs& pairs) {
          End(tile, sums, z, pairs);
        });
  }

  // Within a step; -1: its end.
  __device__ __forceinline__ int LayerAfter(int layer) const {
    if (layer + 1 == launch_.layout.field_layers) {
      if (stage_ + 1 < launch_.steps.stages) return 0;
      return launch_.steps.hypersolved ? layer + 1 : -1;
    }
    return layer + 1 == launch_.layout.layers_count ? -1 : layer + 1;
  }

  // What this stage's slope is aside; kBefore: nothing.
  __device__ __forceinline__ int AsideOfStage() const {
    const bool read = stage_ < 2 && stage_ < launch_.steps.stages &&
                      launch_.layout.aside_first[kAsideSlope1 + stage_] >= 0;
    return read ? kAsideSlope1 + stage_ : kBefore;
  }

  // sums: of this stage's slope, or of g. z: the state, which is vector 0; the slopes of the stages
  // before the last follow. pairs: the state where f or g is evaluated next.
  __device__ __forceinline__ void End(int tile, StateSums& sums, StateSums& z, StatePairs& pairs) {
    const ConvSteps& steps = launch_.steps;
    const bool corrects = stage_ == steps.stages, last = stage_ + 1 >= steps.stages;
    const int aside = AsideOfStage();
    if (aside != kBefore) {
      PackState(sums, pairs);
      layers_.planes().Write<kConvChannelsMax>(aside, tile, pairs);
    }
    const bool before_g = stage_ + 1 == steps.stages && steps.hypersolved;
    if (before_g) PackState(z, pairs);
#pragma unroll 1
    for (int j = 0; !corrects && j < stage_; ++j) {
      StateSums slope;
      ConvPlanes::Load(layers_.Vector(1 + j), tile, slope);
      AddScaled(steps.a[stage_ + 1][j], slope, z);
    }
    AddScaled(corrects ? steps.g : steps.a[stage_ + 1][stage_], sums, z);
    if (!before_g) PackState(z, pairs);
    if (last) {
      ConvPlanes::Save(layers_.Vector(0), tile, z);
    } else {
      ConvPlanes::Save(layers_.Vector(1 + stage_), tile, sums);
    }
    if (last && !before_g && step_ + 1 == steps.steps) layers_.planes().Store(z1_, tile, z);
  }

  const ConvLaunch& launch_;
  ConvLayers layers_;
  int step_ = 0, stage_ = 0;
  float* z1_ = nullptr;
};

__global__ void __launch_bounds__(kConvThreads, 1)
    StepsKernel(const __grid_constant__ ConvLaunch launch) {
  ConvStepper(launch).Run();
}

}  // namespace

const void* ConvStepsKernel() { return reinterpret_cast<const void*>(StepsKernel); }

}  // namespace hyperserve::kernels
