// One evaluation of a net with two tangents on the 16 rows of a warp: forward mode, so that the
// outputs are J t of the inputs' tangents t. Values have the bits that FlowNetDevice gives them.
// Nets of two outputs only.
#pragma once

#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/mma.cuh"

namespace hyperserve::kernels {

// Each lane's part of a number of its rows.
struct LanePart {
  float v[kLaneRows] = {};
};

// A value with its tangents.
struct LaneDual {
  LaneVector<1> value, tangents[kFlowTangents];

  // this += weight * x.
  __device__ __forceinline__ void Add(float weight, const LaneDual& x) {
    value.Add(weight, x.value);
#pragma unroll
    for (int t = 0; t < kFlowTangents; ++t) tangents[t].Add(weight, x.tangents[t]);
  }
};

__device__ __forceinline__ void SetUnitTangents(LaneDual& x) {
#pragma unroll
  for (int t = 0; t < kFlowTangents; ++t) {
#pragma unroll
    for (int m = 0; m < kLaneRows; ++m) x.tangents[t].v[m][0] = threadIdx.x % 4 == t ? 1.0f : 0.0f;
  }
}

// sum += weight * the trace of the slope's tangents, which are those of unit tangents.
__device__ __forceinline__ void AddDivergence(float weight, const LaneDual& slope, LanePart& sum) {
#pragma unroll
  for (int m = 0; m < kLaneRows; ++m) {
#pragma unroll
    for (int t = 0; t < kFlowTangents; ++t) {
      if (threadIdx.x % 4 == t) sum.v[m] = fmaf(weight, slope.tangents[t].v[m][0], sum.v[m]);
    }
  }
}

// sum += log|det| of the tangents, in the lane of the first dimension.
__device__ __forceinline__ void AddLogDeterminant(const LaneDual& z, LanePart& sum) {
  static_assert(kFlowTangents == 2);
#pragma unroll
  for (int m = 0; m < kLaneRows; ++m) {
    const float a = z.tangents[0].v[m][0], b = z.tangents[1].v[m][0];
    const float below_a = __shfl_xor_sync(0xFFFFFFFFu, a, 1);
    const float below_b = __shfl_xor_sync(0xFFFFFFFFu, b, 1);
    if (threadIdx.x % 4 == 0) sum.v[m] += logf(fabsf(fmaf(a, below_b, -b * below_a)));
  }
}

template <FlowActivation kActivation, int kWidth>
class FlowDualDevice : public FlowNetDevice<kActivation, kWidth, 2, 1 + kFlowTangents> {
  using Base = FlowNetDevice<kActivation, kWidth, 2, 1 + kFlowTangents>;
  using typename Base::Act;
  using typename Base::Bias;
  using typename Base::Hidden;
  using typename Base::LastSums;

 public:
  using typename Base::Inputs;
  using typename Base::LayerSums;
  using typename Base::Vector;
  using typename Base::Vectors;
  using State = LaneDual;

  static __device__ __forceinline__ LaneDual StateOf(const Vector& z) {
    LaneDual x{.value = z};
    SetUnitTangents(x);
    return x;
  }
  static __device__ __forceinline__ const Vector& ValueOf(const LaneDual& x) { return x.value; }
  static __device__ __forceinline__ Vector& ValueIn(LaneDual& x) { return x.value; }
  template <class Table>
  static __device__ __forceinline__ void AddProduct(const Table& table, int i, int column,
                                                    const LaneDual& x, LaneDual& y) {
    table.AddProduct(i, column, x.value, y.value);
#pragma unroll
    for (int t = 0; t < kFlowTangents; ++t) {
      table.AddProduct(i, column, x.tangents[t], y.tangents[t]);
    }
  }

  static __device__ __forceinline__ LaneDual Load(const Vectors& vectors, int slot) {
    LaneDual x{.value = vectors.Load(slot)};
#pragma unroll
    for (int t = 0; t < kFlowTangents; ++t) x.tangents[t] = vectors.Load(slot, 1 + t);
    return x;
  }
  static __device__ __forceinline__ void Store(Vectors& vectors, int slot, const LaneDual& x) {
    vectors.Store(slot, x.value);
#pragma unroll
    for (int t = 0; t < kFlowTangents; ++t) vectors.Store(slot, x.tangents[t], 1 + t);
  }

  static __device__ __forceinline__ LaneDual Evaluate(const FlowNetLayout& net, const LaneDual& x,
                                                      const Inputs& inputs, LayerSums& sums,
                                                      uint32_t& unfit) {
    // Of the layer before its activation. The tangents come first, so that few registers are in use
    // at once.
    Hidden tangents[kFlowTangents];
#pragma unroll
    for (int t = 0; t < kFlowTangents; ++t) {
      FirstOfTangent(net, x.tangents[t], 1 + t, inputs, sums);
      tangents[t] = Rounded(sums);
    }
    Base::First(net, x.value, inputs, sums, unfit);
#pragma unroll 1
    for (int l = 0; l < net.squares; ++l) {
      const Hidden value = Activated<FlowReader::kSquare>(net, l, sums, tangents);
      BeginProducts();  // keeps the compiler from moving activations behind the barrier
      ProductTurns::Take();
#pragma unroll
      for (int t = 0; t < kFlowTangents; ++t) {
        Base::template Square<Bias::kNone>(net, l, tangents[t], sums);
        tangents[t] = Rounded(sums);
      }
      Base::template Square<Bias::kAdd, Base::Turn::kPasses>(net, l, value, sums);
    }
    return LastOf(net, sums, tangents);
  }

 private:
  static __device__ __forceinline__ Hidden Rounded(const LayerSums& sums) {
    return Base::ForEachPair(
        [&](int i, int m) { return PackHalves(sums.v[i][2 * m], sums.v[i][2 * m + 1]); });
  }

  // Keeps the compiler from making far columns first, for which it has no registers: that cost a
  // twelfth of the time.
  static __device__ __forceinline__ void KeepOrder(int i) {
    if (i % 4 == 0) __syncwarp();
  }

  // Of the value; tangents are multiplied with the slopes of hidden layer `layer` there.
  template <FlowReader kReader>
  static __device__ __forceinline__ Hidden Activated(const FlowNetLayout& net, int layer,
                                                     const LayerSums& sums,
                                                     Hidden (&tangents)[kFlowTangents]) {
    return Base::ForEachPair([&](int i, int m) {
      if (m == 0) KeepOrder(i);
      const float2 slopes = Base::Slopes(net, layer, i);
      const __half2 by = SlopesLessOne(sums, i, m, slopes);
#pragma unroll
      for (int t = 0; t < kFlowTangents; ++t) {
        const __half2 scaled = Scaled(by, tangents[t], i, m);
        tangents[t].a[i / 2].halves[i % 2 * 2 + m] = *reinterpret_cast<const uint32_t*>(&scaled);
      }
      return Base::template ActivatedPair<kReader>(sums, i, m, slopes);
    });
  }

  static __device__ __forceinline__ __half2 SlopesLessOne(const LayerSums& sums, int i, int m,
                                                          const float2& slopes) {
    return __floats2half2_rn(Act::SlopeLessOne(sums.v[i][2 * m], slopes.x),
                             Act::SlopeLessOne(sums.v[i][2 * m + 1], slopes.y));
  }

  // The pair (i, m) of a tangent times one more than `by`.
  static __device__ __forceinline__ __half2 Scaled(const __half2& by, const Hidden& tangent, int i,
                                                   int m) {
    const uint32_t pair = tangent.a[i / 2].halves[i % 2 * 2 + m];
    const __half2 x = *reinterpret_cast<const __half2*>(&pair);
    return __hfma2(by, x, x);
  }

  static __device__ __forceinline__ LaneDual LastOf(const FlowNetLayout& net, const LayerSums& sums,
                                                    Hidden (&tangents)[kFlowTangents]) {
    const Hidden value = Activated<FlowReader::kLast>(net, net.squares, sums, tangents);
    LastSums y, of_tangents[kFlowTangents];
    BeginProducts();
    Base::AddLast(net, value, y);
#pragma unroll
    for (int t = 0; t < kFlowTangents; ++t) Base::AddLast(net, tangents[t], of_tangents[t]);
    EndPart();
    LaneDual all{.value = Base::OutputsOf(net, y)};
#pragma unroll
    for (int t = 0; t < kFlowTangents; ++t) {
      AwaitProducts(of_tangents[t].of[0]);
      AwaitProducts(of_tangents[t].of[1]);
      all.tangents[t] = Base::Added(of_tangents[t]);
    }
    return all;
  }

  // The first layer of a tangent; `part`: of the vectors. Step and depth have none.
  static __device__ __forceinline__ void FirstOfTangent(const FlowNetLayout& net,
                                                        const Vector& state, int part,
                                                        const Inputs& inputs, LayerSums& sums) {
    Base::AddVector(net, state, 0, Bias::kNone, sums);
#pragma unroll 1
    for (int i = 0; i < net.inputs; ++i) {
      const int slot = Image<int>(net.list)[i];
      if (slot == kSlotConstants) continue;
      Base::AddVector(net, inputs.vectors.Load(slot, part), i + 1, Bias::kNone, sums);
    }
  }
};

}  // namespace hyperserve::kernels
