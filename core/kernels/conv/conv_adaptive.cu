// The kernel of solves under error control: each image takes its own steps, and one that ends is
// replaced at once by one that waits. See core/kernels/adaptive/flow_control.h.
#include <cfloat>
#include <cstdint>

#include "core/kernels/adaptive/flow_control.h"
#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_layers.cuh"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/kernels/conv/conv_sums.cuh"
#include "core/kernels/flow/flow_rows.h"

namespace hyperserve::kernels {
namespace {

// Vectors: the state and the state after the step, which change places when a step is accepted;
// the slopes, of which the first and the last do; the sums of the norms.
class ConvAdaptiveSolver {
  static constexpr int kProbe = -1;
  enum Step { kContinues, kEnds };

 public:
  explicit __device__ ConvAdaptiveSolver(const ConvLaunch& launch)
      : launch_(launch),
        plan_(launch.steps),
        control_(launch.control),
        layers_(launch),
        budget_(launch.control.evaluations_max) {}

  __device__ __forceinline__ void Run() {
    layers_.Prepare();
    layers_.ForRows(0, [&](int64_t row) {
      const RowFit fit = budget_ < plan_.stages + 1 ? kRowUnfinished : Solve(row);
      if (layers_.planes().rank() > 0 || threadIdx.x > 0) return;
      if (fit != kRowFits) launch_.rows.unfit[row] = fit;
      launch_.rows.evaluations[row] = 2 + (plan_.stages - 1) * attempts_;
    });
  }

 private:
  __device__ __forceinline__ float4* State() const { return layers_.Vector(swaps_ & 1); }
  __device__ __forceinline__ float4* StateAfter() const { return layers_.Vector(~swaps_ & 1); }
  __device__ __forceinline__ float4* Slope(int stage) const {
    const int last = plan_.stages - 1;
    const bool moves = (swaps_ & 1) != 0 && (stage == 0 || stage == last);
    return layers_.Vector(2 + (moves ? last - stage : stage));
  }

  __device__ __forceinline__ RowFit Solve(int64_t row) {
    const float* z0 = layers_.planes().Row(launch_.rows.z0, row);
    swaps_ = 0, attempts_ = 0, stage_ = 0;
    s_ = depth_ = plan_.s0;
    controller_ = {};
    layers_.Fill(kBefore, [&](int tile, StatePairs& pairs) {
      StateSums z;
      layers_.planes().Read(z0, tile, z);
      ConvPlanes::Save(State(), tile, z);
      PackState(z, pairs);
    });
#pragma unroll 1
    for (;;) {
      Evaluate();
      if (stage_ > 0 && stage_ + 1 < plan_.stages) {
        ++stage_;
        depth_ = fmaf(plan_.c[stage_], eps_, s_);
        continue;
      }
      RowFit fit;
      if (Judge(fit) == kEnds) {
        if (fit == kRowFits) Store(row);
        return fit;
      }
      layers_.Fill(kBefore, [&](int tile, StatePairs& pairs) {
        StateSums z, slope;
        ConvPlanes::Load(State(), tile, z);
        ConvPlanes::Load(Slope(0), tile, slope);
        AddScaled(first_weight_, slope, z);
        PackState(z, pairs);
      });
    }
  }

  __device__ __forceinline__ void Evaluate() {
    const int last = launch_.layout.field_layers - 1;
#pragma unroll 1
    for (int layer = 0; layer < last; ++layer) layers_.RunHidden(layer, layer + 1, depth_);
    layers_.RunLast(
        last, 0, depth_, kBefore,
        [&](int tile, StateSums& z) { ConvPlanes::Load(State(), tile, z); },
        [&](int tile, StateSums& slope, StateSums& z, StatePairs& pairs) {
          Take(tile, slope, z, pairs);
        });
    --budget_;
  }

  // pairs: where f is evaluated next, if it is known.
  __device__ __forceinline__ void Take(int tile, StateSums& slope, StateSums& z,
                                       StatePairs& pairs) {
    if (stage_ != kProbe) ConvPlanes::Save(Slope(stage_), tile, slope);
    if (stage_ > 0 && stage_ + 1 < plan_.stages) {
      AddSlopes(plan_.a[stage_ + 1], eps_, tile, slope, z);
      if (stage_ + 2 == plan_.stages) ConvPlanes::Save(StateAfter(), tile, z);
    } else if (stage_ > 0) {
      StateSums error = {};
      AddSlopes(control_.error, eps_, tile, slope, error);
      ConvPlanes::Load(StateAfter(), tile, slope);
      // An infinite end would make any error look small.
      SumNorms(tile, [&](int i, int k) {
        const float after = slope.v[i][k], largest = fmaxf(fabsf(z.v[i][k]), fabsf(after));
        return Parts{error.v[i][k] + (after - after), 0.0f, largest};
      });
    } else if (stage_ == 0) {
      SumNorms(tile, [&](int i, int k) {
        return Parts{z.v[i][k], slope.v[i][k], fabsf(z.v[i][k])};
      });
    } else {
      StateSums first;
      ConvPlanes::Load(Slope(0), tile, first);
      SumNorms(tile, [&](int i, int k) {
        return Parts{first.v[i][k], slope.v[i][k] - first.v[i][k], fabsf(z.v[i][k])};
      });
    }
    PackState(z, pairs);
  }

  // y += scale sum_j weights_j k_j, up to this stage's slope.
  __device__ __forceinline__ void AddSlopes(const float* weights, float scale, int tile,
                                            const StateSums& slope, StateSums& y) const {
#pragma unroll 1
    for (int j = 0; j < stage_; ++j) {
      StateSums before;
      ConvPlanes::Load(Slope(j), tile, before);
      AddScaled(scale * weights[j], before, y);
    }
    AddScaled(scale * weights[stage_], slope, y);
  }

  // Of a number: what is divided by its tolerance, twice, and what that is relative to.
  struct Parts {
    float first, second, scale;
  };

  // The sums of a norm's squares of each pixel go to memory, in an order that knows nothing of
  // blocks and tiles.
  template <class PartsOf>
  __device__ __forceinline__ void SumNorms(int tile, const PartsOf& parts_of) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
      for (int i = 0; i < kConvChannelsMax / 8; ++i) {
#pragma unroll
        for (int k = 2 * h; k < 2 * h + 2; ++k) {
          if (8 * i + 2 * (ConvPlanes::Lane() % 4) + k % 2 >= launch_.layout.channels) continue;
          const Parts parts = parts_of(i, k);
          const float scale = fmaf(control_.rtol, parts.scale, control_.atol);
          const float first = parts.first / scale, second = parts.second / scale;
          sum.x = fmaf(first, first, sum.x);
          sum.y = fmaf(second, second, sum.y);
        }
      }
      sum = Plus(sum, 1);
      sum = Plus(sum, 2);
      const int pixel = layers_.planes().PixelOfImage(tile, h);
      if (ConvPlanes::Lane() % 4 == 0 && pixel >= 0) PixelNorms()[pixel] = sum;
    }
  }

  static __device__ __forceinline__ float2 Plus(float2 sum, int lanes) {
    sum.x += __shfl_xor_sync(0xFFFFFFFFu, sum.x, lanes);
    sum.y += __shfl_xor_sync(0xFFFFFFFFu, sum.y, lanes);
    return sum;
  }

  // Of the image, in the memory of its first block.
  __device__ __forceinline__ float2* PixelNorms() const {
    return reinterpret_cast<float2*>(layers_.Vector(plan_.stages + 2) -
                                     static_cast<int64_t>(layers_.planes().rank()) *
                                         launch_.vectors * (kVectorFloats / 4));
  }

  // What the last evaluation left, the same in all threads of all blocks.
  __device__ __forceinline__ float2 Norms() const {
    layers_.planes().AwaitBlocks();
    const int pixels = launch_.layout.height * launch_.layout.width;
    float2 sum = make_float2(0.0f, 0.0f);
    for (int pixel = static_cast<int>(threadIdx.x); pixel < pixels; pixel += kConvThreads) {
      const float2 one = __ldcg(PixelNorms() + pixel);
      sum.x += one.x;
      sum.y += one.y;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) sum = Plus(sum, lanes);
    float2* of_warps = layers_.WarpNumbers();
    if (ConvPlanes::Lane() == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = make_float2(0.0f, 0.0f);
    for (int warp = 0; warp < kConvThreads / 32; ++warp) {
      sum.x += of_warps[warp].x;
      sum.y += of_warps[warp].y;
    }
    const float elements = static_cast<float>(pixels * launch_.layout.channels);
    return make_float2(sqrtf(sum.x / elements), sqrtf(sum.y / elements));
  }

  // After the first slope, the probe or the last stage. kEnds: the row ends as `fit` says; else
  // first_weight_ leads to where f is evaluated next.
  __device__ __forceinline__ Step Judge(RowFit& fit) {
    const float2 norms = Norms();
    const float span = control_.s1 - plan_.s0;
    if (stage_ == 0) {
      eps_ = first_weight_ = FlowFirstGuess(norms.x, norms.y, span);
      depth_ = plan_.s0 + eps_;
      stage_ = kProbe;
      return kContinues;
    }
    if (stage_ == kProbe) {
      eps_ = fmaxf(FlowFirstStep(eps_, norms.x, norms.y / eps_, control_.embedded_order, span),
                   10.0f * FlowSmallestStep(plan_.s0));
      return BeginStep(fit);
    }
    const FlowDecision decision = Decide(norms.x, control_.embedded_order, controller_);
    attempts_ += 1;
    fit = kRowFits;
    if (decision.accepted) {
      s_ = s_next_;
      ++swaps_;
      if (s_ == control_.s1) return kEnds;
    }
    eps_ *= decision.factor;
    // Another engine says what becomes of such rows.
    fit = kRowUnfit;
    if (!(norms.x <= FLT_MAX) || attempts_ >= control_.attempts_max ||
        !(eps_ >= FlowSmallestStep(s_))) {
      return kEnds;
    }
    return BeginStep(fit);
  }

  __device__ __forceinline__ Step BeginStep(RowFit& fit) {
    fit = kRowUnfinished;
    if (budget_ < plan_.stages - 1) return kEnds;
    s_next_ = FlowNextDepth(s_, eps_, control_.s1);
    eps_ = s_next_ - s_;
    first_weight_ = eps_ * plan_.a[1][0];
    depth_ = fmaf(plan_.c[1], eps_, s_);
    stage_ = 1;
    return kContinues;
  }

  __device__ __forceinline__ void Store(int64_t row) {
    float* z1 = layers_.planes().Row(launch_.rows.z1, row);
    for (int tile = ConvPlanes::Group(); tile < launch_.geometry.tiles; tile += kConvGroups) {
      StateSums z;
      ConvPlanes::Load(State(), tile, z);
      layers_.planes().Store(z1, tile, z);
    }
  }

  const ConvLaunch& launch_;
  const ConvSteps& plan_;  // its numbers are not times eps
  const ConvControl& control_;
  ConvLayers layers_;
  int budget_;  // evaluations of f that this block may make yet
  // The rest is the same in all threads of an image. eps: of the step, or of the probe.
  uint32_t swaps_ = 0;
  int attempts_ = 0, stage_ = 0;
  float s_ = 0.0f, s_next_ = 0.0f, eps_ = 0.0f, depth_ = 0.0f, first_weight_ = 0.0f;
  FlowController controller_;
};

__global__ void __launch_bounds__(kConvThreads, 1)
    AdaptiveKernel(const __grid_constant__ ConvLaunch launch) {
  ConvAdaptiveSolver(launch).Run();
}

}  // namespace

const void* ConvAdaptiveKernel() { return reinterpret_cast<const void*>(AdaptiveKernel); }

}  // namespace hyperserve::kernels
