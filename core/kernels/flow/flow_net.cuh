// One evaluation of a net on the 16 rows of a warp, together with the other warps of its warpgroup.
// Hidden numbers live in registers: a layer's sums, activated and rounded, are the operands of the
// next product.
#pragma once

#include "core/kernels/flow/activations.cuh"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/mma.cuh"

namespace hyperserve::kernels {

inline constexpr int kWarpRows = 16;
// A lane (g, q) keeps rows g and g + 8; of them dimension q, and q + 4 where there are two halves.
inline constexpr int kLaneRows = 2;

template <int kHalves>
struct LaneVector {
  float v[kLaneRows][kHalves] = {};

  // this += weight * x.
  __device__ __forceinline__ void Add(float weight, const LaneVector& x) {
#pragma unroll
    for (int m = 0; m < kLaneRows; ++m) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) v[m][h] = fmaf(weight, x.v[m][h], v[m][h]);
    }
  }
};

// Shared memory: the image, then the vectors of each warp.
extern __shared__ uint4 flow_shared[];

template <class T>
__device__ __forceinline__ const T* Image(uint32_t offset) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(flow_shared) + offset);
}

// The vectors of one warp, [slot][lane row][half][lane]; each lane sees its own part alone.
template <int kHalves>
class LaneVectors {
 public:
  static constexpr int kSlotFloats = kLaneRows * kHalves * 32;

  __device__ explicit LaneVectors(float* of_warp) : mine_(of_warp + threadIdx.x % 32) {}

  __device__ __forceinline__ LaneVector<kHalves> Load(int slot) const {
    LaneVector<kHalves> x;
#pragma unroll
    for (int i = 0; i < kLaneRows * kHalves; ++i) {
      x.v[i / kHalves][i % kHalves] = mine_[slot * kSlotFloats + i * 32];
    }
    return x;
  }
  __device__ __forceinline__ void Store(int slot, const LaneVector<kHalves>& x) {
#pragma unroll
    for (int i = 0; i < kLaneRows * kHalves; ++i) {
      mine_[slot * kSlotFloats + i * 32] = x.v[i / kHalves][i % kHalves];
    }
  }

 private:
  float* mine_;
};

// kWidth: of hidden layers, padded; kOutputs: of the last, padded.
template <FlowActivation kActivation, int kWidth, int kOutputs>
class FlowNetDevice {
 public:
  static constexpr int kHalves = (kOutputs + 3) / 4;
  using Vector = LaneVector<kHalves>;
  using Layer = Sums<kWidth>;

  // What a net reads beside the state that it is evaluated at.
  struct Inputs {
    LaneVectors<kHalves> vectors;
    float step, depth;
  };

  // Bit m of `unfit` is set where lane row m has an input beyond the layout's bound. `sums` is
  // where layers are summed up: its numbers don't matter, but one place for the whole kernel saves
  // registers.
  static __device__ __forceinline__ Vector Evaluate(const FlowNetLayout& net, const Vector& state,
                                                    const Inputs& inputs, Layer& sums,
                                                    uint32_t& unfit) {
    First(net, state, inputs, sums, unfit);
#pragma unroll 1
    for (int l = 0; l < net.squares; ++l) Square(net, l, Activated(net, l, sums), sums);
    return Last(net, sums);
  }

 private:
  using Act = ActivationOf<kActivation>;
  static constexpr int kSteps = kWidth / 16;
  static constexpr uint32_t kOne = 0x3C00;  // as a half

  struct Hidden {
    OperandA a[kSteps];
  };

  static __device__ __forceinline__ uint32_t Address(uint32_t offset) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(flow_shared)) + offset;
  }

  // The first layer's sums: products of split halves, a step for each half of each vector.
  static __device__ __forceinline__ void First(const FlowNetLayout& net, const Vector& state,
                                               const Inputs& inputs, Layer& sums, uint32_t& unfit) {
    AddVector(net, state, 0, sums, unfit);
#pragma unroll 1
    for (int i = 0; i < net.inputs; ++i) {
      const int slot = Image<int>(net.list)[i];
      Vector x;
      if (slot == kSlotConstants) {
        const int q = threadIdx.x % 4;
        const float constant = q == 0 ? inputs.step : q == 1 ? inputs.depth : 0.0f;
#pragma unroll
        for (int m = 0; m < kLaneRows; ++m) x.v[m][0] = constant;
      } else {
        x = inputs.vectors.Load(slot);
      }
      AddVector(net, x, (i + 1) * kHalves, sums, unfit);
    }
  }

  static __device__ __forceinline__ void AddVector(const FlowNetLayout& net, const Vector& x,
                                                   int step, Layer& sums, uint32_t& unfit) {
    OperandA a[kHalves];
    // A lane's last depth: one where the first step's matrix has the bias.
    const uint32_t one = step == 0 && threadIdx.x % 4 < 2 ? kOne << 16 : 0u;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) {
        // Written so that what is not a number is unfit, too.
        if (!(fabsf(x.v[m][h]) <= net.input_max)) unfit |= 1u << m;
        a[h].halves[m] = SplitHalves(x.v[m][h]);
        a[h].halves[m + 2] = (a[h].halves[m] & 0xFFFFu) | (h == 0 ? one : 0u);
      }
    }
    BeginProducts();
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      AddStep(sums, a[h], Tiles(Address(net.first) + (step + h) * kWidth * 32, 2 * kFlowTileBytes),
              0, step + h);
    }
    EndProducts(sums);
  }

  static __device__ __forceinline__ Hidden Activated(const FlowNetLayout& net, int layer,
                                                     const Layer& sums) {
    Hidden x;
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      const float2 slopes = Slopes(net, layer, i);
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) {
        x.a[i / 2].halves[i % 2 * 2 + m] = PackHalves(Act::Apply(sums.v[i][2 * m], slopes.x),
                                                      Act::Apply(sums.v[i][2 * m + 1], slopes.y));
      }
    }
    return x;
  }

  // The sums of square layer `square` (from 0).
  static __device__ __forceinline__ void Square(const FlowNetLayout& net, int square,
                                                const Hidden& x, Layer& sums) {
    constexpr int kDepths = kWidth + 16;
    const Tiles matrix(Address(net.square) + square * kWidth * kDepths * 2,
                       kDepths / 8 * kFlowTileBytes);
    const uint32_t one = threadIdx.x % 4 == 0 ? kOne << 16 | kOne : 0u;
    const OperandA ones = {{one, one, 0u, 0u}};
    BeginProducts();
#pragma unroll
    for (int k = 0; k <= kSteps; ++k) {
      AddStep(sums, k < kSteps ? x.a[k] : ones, matrix, k, k);
    }
    EndProducts(sums);
  }

  // Of columns 8 i + 2 q and the next.
  static __device__ __forceinline__ float2 Slopes(const FlowNetLayout& net, int layer, int i) {
    if constexpr (Act::kSlopes) {
      return Image<float2>(net.slopes)[layer * kWidth / 2 + i * 4 + threadIdx.x % 4];
    }
    return make_float2(0.0f, 0.0f);
  }

  // The last layer, in fp32.
  static __device__ __forceinline__ Vector Last(const FlowNetLayout& net, const Layer& sums) {
    float y[kLaneRows][kOutputs] = {};
    const float4* weights = Image<float4>(net.last) + threadIdx.x % 4 * (kOutputs / 2);
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      const float2 slopes = Slopes(net, net.squares, i);
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) {
        const float x0 = Act::Apply(sums.v[i][2 * m], slopes.x);
        const float x1 = Act::Apply(sums.v[i][2 * m + 1], slopes.y);
#pragma unroll
        for (int j = 0; j < kOutputs / 2; ++j) {
          const float4 w = weights[i * 4 * (kOutputs / 2) + j];
          y[m][2 * j] = fmaf(x1, w.y, fmaf(x0, w.x, y[m][2 * j]));
          y[m][2 * j + 1] = fmaf(x1, w.w, fmaf(x0, w.z, y[m][2 * j + 1]));
        }
      }
    }
    return Reduce(net, y);
  }

  // Sums over the four lanes of a row; of them each keeps its dimensions, n % 4 == q. A lane halves
  // what it has twice: it gives away the odd or the even ones, then every other pair.
  static __device__ __forceinline__ Vector Reduce(const FlowNetLayout& net,
                                                  const float (&y)[kLaneRows][kOutputs]) {
    const int q = threadIdx.x % 4;
    const bool odd = q % 2 != 0, upper = q / 2 != 0;
    Vector x;
#pragma unroll
    for (int m = 0; m < kLaneRows; ++m) {
      float pair[2 * kHalves] = {};
#pragma unroll
      for (int i = 0; i < kOutputs / 2; ++i) {
        const float given = odd ? y[m][2 * i] : y[m][2 * i + 1];
        pair[i] = (odd ? y[m][2 * i + 1] : y[m][2 * i]) + __shfl_xor_sync(0xFFFFFFFFu, given, 1);
      }
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const float given = upper ? pair[2 * h] : pair[2 * h + 1];
        x.v[m][h] = (upper ? pair[2 * h + 1] : pair[2 * h]) +
                    __shfl_xor_sync(0xFFFFFFFFu, given, 2) + Image<float>(net.last_bias)[q + 4 * h];
      }
    }
    return x;
  }
};

}  // namespace hyperserve::kernels
