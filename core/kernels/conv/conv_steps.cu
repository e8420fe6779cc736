// The kernel of fixed steps of a one-step method, hypersolved or not.
#include <cstdint>

#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_layers.cuh"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/kernels/conv/conv_stage.cuh"
#include "core/kernels/conv/conv_sums.cuh"

namespace hyperserve::kernels {
namespace {

class ConvStepper {
 public:
  explicit __device__ ConvStepper(const ConvLaunch& launch)
      : layers_(launch), stage_(launch, layers_.Vector(0)) {}

  __device__ __forceinline__ void Run() {
    layers_.Prepare();
    layers_.ForRows(0, [&](int64_t row) {
      stage_.StartRow(layers_.planes(), row);
      layers_.Fill(stage_.AsideOfStart(), [&](int tile, StatePairs& pairs) {
        stage_.Begin(layers_.planes(), tile, pairs);
      });
      do {
        RunLayer();
      } while (stage_.Advance());
    });
  }

 private:
  __device__ __forceinline__ void RunLayer() {
    const int layer = stage_.layer(), after = max(stage_.LayerAfter(), 0);
    if (!stage_.EndsNet()) return layers_.RunHidden(layer, after, stage_.Depth());
    layers_.RunLast(
        layer, after, stage_.Depth(), stage_.AsideOfStage(),
        [&](int tile, StateSums& z) { stage_.LoadState(tile, z); },
        [&](int tile, StateSums& sums, StateSums& z, StatePairs& pairs) {
          stage_.End(layers_.planes(), tile, sums, z, pairs);
        });
  }

  ConvLayers layers_;
  ConvStage stage_;
};

__global__ void __launch_bounds__(kConvThreads, 1)
    StepsKernel(const __grid_constant__ ConvLaunch launch) {
  ConvStepper(launch).Run();
}

}  // namespace

const void* ConvStepsKernel() { return reinterpret_cast<const void*>(StepsKernel); }

}  // namespace hyperserve::kernels
