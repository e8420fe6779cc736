// Solves under error control in one launch, tier exact: each row takes its own steps, and a row
// that ends is replaced by one that waits. A round is one evaluation of f, of whatever each row
// needs next: its first slope, the probe of its first step, or a stage.
#pragma once

#include <cstdint>

#include "core/kernels/adaptive/exact_net.cuh"
#include "core/kernels/adaptive/flow_control.h"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/flow_rows.h"
#include "core/kernels/flow/image_copy.cuh"
#include "core/kernels/philox.cuh"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {

inline constexpr int kAdaptiveWarps = 8;  // of a block: two warpgroups

inline constexpr int kAdaptiveWeightFloats = 64;  // of the plan, in shared memory

// Slots of the vectors.
enum FlowAdaptiveSlot : int { kAdaptiveState, kAdaptiveSlope1 };

struct FlowAdaptiveSteps {
  int stages, embedded_order;
  int attempts_max;
  int rounds_max;                         // of a launch
  float weights[kStagesMax][kStagesMax];  // [i]: after slope i, those of the next point; of the
                                          // error after the last
  float c[kStagesMax];
  float rtol, atol, s0, s1;
  float field_s0, sign;  // as FlowSteps
};

struct FlowAdaptiveLaunch {
  FlowLayout layout;
  const uint4* image;
  FlowAdaptiveSteps plan;
  FlowRows rows;
};
using FlowAdaptivePointer = void (*)(FlowAdaptiveLaunch);

// The 16 rows of a warp under way. The four lanes of a row hold the same numbers, apart from the
// dimensions that are theirs.
template <class Net>
class AdaptiveRows {
  static constexpr int kHalves = Net::kHalves;
  static constexpr int kNone = -1, kProbe = -1;

 public:
  using Vector = typename Net::Vector;
  using Vectors = typename Net::Vectors;

  // `warp`: among `warps` of the launch; `weights`: the plan's, in shared memory.
  __device__ __forceinline__ AdaptiveRows(const FlowAdaptiveLaunch& launch, const float* weights,
                                          Vectors vectors, int warp, int warps)
      : launch_(launch),
        plan_(launch.plan),
        weights_(weights),
        vectors_(vectors),
        warp_(warp),
        warps_(warps) {}

  // Where f is to be evaluated.
  __device__ __forceinline__ const Vector& point() const { return point_; }
  __device__ __forceinline__ typename Net::Inputs inputs() const {
    typename Net::Inputs inputs{vectors_, 0.0f, {}};
#pragma unroll
    for (int m = 0; m < kLaneRows; ++m) {
      inputs.depth[m] = fmaf(plan_.sign, row_[m].depth - plan_.s0, plan_.field_s0);
    }
    return inputs;
  }

  __device__ __forceinline__ bool any() const {
    return row_[0].number != kNone || row_[1].number != kNone;
  }

  // Gives rows that wait to the lanes that have none.
  __device__ __forceinline__ void Refill() {
#pragma unroll
    for (int m = 0; m < kLaneRows; ++m) {
      const uint32_t idle = __ballot_sync(0xFFFFFFFFu, q() == 0 && row_[m].number == kNone);
      if (idle == 0 || RowOf(taken_) >= launch_.rows.count) continue;
      const int rank = __popc(idle & ((1u << (Lane() & ~3)) - 1u));
      const int64_t number = RowOf(taken_ + rank);
      if (row_[m].number == kNone && number < launch_.rows.count)
        Begin(m, static_cast<int>(number));
      taken_ += __popc(idle);
    }
  }

  // Takes f at the points in. Bit m of `unfit`: the point of lane row m was beyond the net's bound.
  __device__ __forceinline__ void Take(const Vector& f, uint32_t unfit) {
#pragma unroll
    for (int m = 0; m < kLaneRows; ++m) TakeRow(m, f, (unfit >> m & 1u) != 0);
  }

  // The rows that did not end within the launch.
  __device__ __forceinline__ void Abandon() {
#pragma unroll
    for (int m = 0; m < kLaneRows; ++m) {
      if (row_[m].number != kNone) End(m, kRowUnfinished);
    }
    for (int64_t row; (row = RowOf(taken_ + Lane())) < launch_.rows.count;) {
      launch_.rows.unfit[row] = kRowUnfinished;
      taken_ += 32;
    }
  }

 private:
  struct Row {
    int number = kNone;
    int next = 0;  // the slope that is evaluated next, from 0; kProbe
    int attempts = 0;
    float s = 0.0f, s_next = 0.0f, eps = 0.0f, depth = 0.0f;
    FlowController controller;
  };

  static __device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int q() { return Lane() % 4; }

  // The row that is the warp's k-th: the warps take 16 rows in turn.
  __device__ __forceinline__ int64_t RowOf(int k) const {
    return (static_cast<int64_t>(k / kWarpRows) * warps_ + warp_) * kWarpRows + k % kWarpRows;
  }

  __device__ __forceinline__ float Load(int slot, int m, int h) const {
    return vectors_.Number(slot, m, h);
  }
  __device__ __forceinline__ void Store(int slot, int m, int h, float value) {
    vectors_.Number(slot, m, h) = value;
  }

  __device__ __forceinline__ void Begin(int m, int number) {
    row_[m] = Row{.number = number, .s = plan_.s0, .depth = plan_.s0};
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int n = q() + 4 * h;
      float z = 0.0f;
      if (n < launch_.layout.dimensions) {
        z = launch_.rows.z0 != nullptr
                ? launch_.rows.z0[static_cast<int64_t>(number) * launch_.layout.dimensions + n]
                : Noise(number, n);
      }
      point_.v[m][h] = z;
      Store(kAdaptiveState, m, h, z);
    }
  }

  __device__ __forceinline__ float Noise(int number, int n) const {
    const uint4 words = PhiloxWords(launch_.rows.first_row + static_cast<uint64_t>(number),
                                    static_cast<uint32_t>(n / 4), PhiloxKey(launch_.rows.seed));
    const float2 pair =
        FloatNormalPair(n / 2 % 2 == 0 ? words.x : words.z, n / 2 % 2 == 0 ? words.y : words.w);
    return n % 2 == 0 ? pair.x : pair.y;
  }

  __device__ __forceinline__ void End(int m, RowFit fit) {
    const Row& row = row_[m];
    const int dimensions = launch_.layout.dimensions;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int n = q() + 4 * h;
      if (n < dimensions) {
        launch_.rows.z1[static_cast<int64_t>(row.number) * dimensions + n] =
            Load(kAdaptiveState, m, h);
      }
      point_.v[m][h] = 0.0f;
    }
    if (q() == 0) {
      launch_.rows.unfit[row.number] = fit;
      launch_.rows.evaluations[row.number] = 2 + (plan_.stages - 1) * row.attempts;
    }
    row_[m].number = kNone;
  }

  __device__ __forceinline__ void BeginStep(int m) {
    Row& row = row_[m];
    row.s_next = FlowNextDepth(row.s, row.eps, plan_.s1);
    row.eps = row.s_next - row.s;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      point_.v[m][h] =
          fmaf(row.eps * weights_[0], Load(kAdaptiveSlope1, m, h), Load(kAdaptiveState, m, h));
    }
    row.depth = fmaf(plan_.c[1], row.eps, row.s);
    row.next = 1;
  }

  // Of the four lanes of a row.
  static __device__ __forceinline__ float RowSum(float x) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
  }

  // What a row needs to know of its vectors: norms of error control.
  struct Norms {
    float first, second;
  };

  // Before the first step: of the state and the slope, then of the slope and its change. After the
  // last stage: of the error. `sum`: of the weighted slopes so far.
  __device__ __forceinline__ Norms NormsOf(int m, const Vector& f, const float (&sum)[kHalves]) {
    const Row& row = row_[m];
    const bool last = row.next == plan_.stages - 1;
    float first = 0.0f, second = 0.0f;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      if (q() + 4 * h >= launch_.layout.dimensions) continue;
      const float z = Load(kAdaptiveState, m, h), point = point_.v[m][h];
      const float slope = plan_.sign * f.v[m][h], slope1 = Load(kAdaptiveSlope1, m, h);
      const float largest = last ? fmaxf(fabsf(z), fabsf(point)) : fabsf(z);
      const float scale = fmaf(plan_.rtol, largest, plan_.atol);
      // An infinite end would make any error look small.
      float a = last ? row.eps * sum[h] + (point - point) : row.next == 0 ? z : slope1;
      float b = row.next == 0 ? slope : slope - slope1;
      a /= scale;
      b /= scale;
      first = fmaf(a, a, first);
      second = fmaf(b, b, second);
    }
    const float dimensions = static_cast<float>(launch_.layout.dimensions);
    return {sqrtf(RowSum(first) / dimensions), sqrtf(RowSum(second) / dimensions)};
  }

  __device__ __forceinline__ void TakeRow(int m, const Vector& f, bool unfit) {
    Row& row = row_[m];
    const bool probe = row.next == kProbe;
    const int stage = probe ? 0 : row.next;
    float sum[kHalves] = {};
    if (!probe) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        Store(row.next + kAdaptiveSlope1, m, h, plan_.sign * f.v[m][h]);
      }
#pragma unroll 1
      for (int j = 0; j <= stage; ++j) {
        const float weight = weights_[stage * kStagesMax + j];
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          sum[h] = fmaf(weight, Load(kAdaptiveSlope1 + j, m, h), sum[h]);
        }
      }
    }
    __syncwarp();
    const Norms norms = NormsOf(m, f, sum);
    if (row.number == kNone) return;
    if (unfit) return End(m, kRowUnfit);
    if (probe) return TakeProbe(m, norms);
    if (stage == 0) return TakeFirstSlope(m, norms);
    if (stage == plan_.stages - 1) return Judge(m, norms);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      point_.v[m][h] = fmaf(row.eps, sum[h], Load(kAdaptiveState, m, h));
    }
    row.depth = fmaf(plan_.c[stage + 1], row.eps, row.s);
    row.next = stage + 1;
  }

  __device__ __forceinline__ void TakeFirstSlope(int m, const Norms& norms) {
    Row& row = row_[m];
    row.eps = FlowFirstGuess(norms.first, norms.second, plan_.s1 - plan_.s0);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      point_.v[m][h] = fmaf(row.eps, Load(kAdaptiveSlope1, m, h), point_.v[m][h]);
    }
    row.depth = plan_.s0 + row.eps;
    row.next = kProbe;
  }

  __device__ __forceinline__ void TakeProbe(int m, const Norms& norms) {
    Row& row = row_[m];
    row.eps = fmaxf(FlowFirstStep(row.eps, norms.first, norms.second / row.eps,
                                  plan_.embedded_order, plan_.s1 - plan_.s0),
                    10.0f * FlowSmallestStep(plan_.s0));
    BeginStep(m);
  }

  __device__ __forceinline__ void Judge(int m, const Norms& norms) {
    Row& row = row_[m];
    const FlowDecision decision = Decide(norms.first, plan_.embedded_order, row.controller);
    row.attempts += 1;
    if (decision.accepted) {
      row.s = row.s_next;
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        Store(kAdaptiveState, m, h, point_.v[m][h]);
        Store(kAdaptiveSlope1, m, h, Load(kAdaptiveSlope1 + plan_.stages - 1, m, h));
      }
      if (row.s == plan_.s1) return End(m, kRowFits);
    }
    row.eps *= decision.factor;
    // The readable engine says what becomes of such rows.
    if (!(norms.first <= FLT_MAX) || row.attempts >= plan_.attempts_max ||
        !(row.eps >= FlowSmallestStep(row.s))) {
      return End(m, kRowUnfit);
    }
    BeginStep(m);
  }

  const FlowAdaptiveLaunch& launch_;
  const FlowAdaptiveSteps& plan_;
  const float* weights_;
  Vectors vectors_;
  const int warp_, warps_;
  int taken_ = 0;  // of the warp's rows
  Vector point_;
  Row row_[kLaneRows];
};

// Whether it is so for any thread of the warpgroup.
__device__ __forceinline__ bool AnyOfGroup(bool mine) {
  int any;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.b32 p, %1, 0; barrier.cta.red.or.pred q, %2, 128, p; "
      "selp.b32 %0, 1, 0, q; }"
      : "=r"(any)
      : "r"(static_cast<int>(mine)), "r"(1 + static_cast<int>(threadIdx.x) / 128)
      : "memory");
  return any != 0;
}

template <FlowActivation kActivation, int kWidth, int kOutputs>
__global__ void __launch_bounds__(kAdaptiveWarps * 32, 1)
    FlowAdaptiveKernel(const __grid_constant__ FlowAdaptiveLaunch launch) {
  using Net = FlowExactDevice<kActivation, kWidth, kOutputs>;
  ImageCopy::Start(launch.image, launch.layout.bytes, launch.layout.bytes);
  float* weights = reinterpret_cast<float*>(flow_shared + launch.layout.bytes / 16);
  for (int i = threadIdx.x; i < kStagesMax * kStagesMax; i += blockDim.x) {
    weights[i] = launch.plan.weights[i / kStagesMax][i % kStagesMax];
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float* vectors = weights + kAdaptiveWeightFloats +
                   warp * (kAdaptiveSlope1 + launch.plan.stages) * Net::Vectors::kSlotFloats;
  // Neighbouring groups of rows go to different multiprocessors.
  const int group = warp / 4 * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  AdaptiveRows<Net> rows(launch, weights, typename Net::Vectors(vectors), group * 4 + warp % 4,
                         static_cast<int>(gridDim.x * (blockDim.x / 32)));
  ImageCopy::AwaitFirst();
  typename Net::LayerSums sums = {};
#pragma unroll 1
  for (int round = 0; round < launch.plan.rounds_max; ++round) {
    rows.Refill();
    __syncwarp();
    if (!AnyOfGroup(rows.any())) break;
    uint32_t unfit = 0;
    const typename Net::Vector f =
        Net::Evaluate(launch.layout.field, rows.point(), rows.inputs(), sums, unfit);
    rows.Take(f, unfit);
  }
  rows.Abandon();
}

// For a layout's width and outputs.
template <FlowActivation kActivation>
FlowAdaptivePointer FlowAdaptiveKernelFor(int width, int outputs) {
  if (width == 64) {
    return outputs == 2 ? FlowAdaptiveKernel<kActivation, 64, 2>
                        : FlowAdaptiveKernel<kActivation, 64, 8>;
  }
  return outputs == 2 ? FlowAdaptiveKernel<kActivation, 128, 2>
                      : FlowAdaptiveKernel<kActivation, 128, 8>;
}

extern template FlowAdaptivePointer FlowAdaptiveKernelFor<FlowActivation::kSoftplus>(int, int);
extern template FlowAdaptivePointer FlowAdaptiveKernelFor<FlowActivation::kTanh>(int, int);
extern template FlowAdaptivePointer FlowAdaptiveKernelFor<FlowActivation::kSilu>(int, int);
extern template FlowAdaptivePointer FlowAdaptiveKernelFor<FlowActivation::kRectifier>(int, int);

}  // namespace hyperserve::kernels
