// One evaluation of a net in tier exact on the 16 rows of a warp: hidden numbers and weights are a
// high and a low half each, and a product is three (high x high, high x low, low x high).
#pragma once

#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/mma.cuh"

namespace hyperserve::kernels {

template <FlowActivation kActivation, int kWidth, int kOutputs>
class FlowExactDevice
    : public FlowNetDevice<kActivation, kWidth, kOutputs, 1, FlowPrecision::kExact> {
  using Base = FlowNetDevice<kActivation, kWidth, kOutputs, 1, FlowPrecision::kExact>;
  using typename Base::Act;
  using typename Base::Hidden;

 public:
  using typename Base::Inputs;
  using typename Base::LayerSums;
  using typename Base::Vector;

  // As FlowNetDevice::Evaluate.
  static __device__ __forceinline__ Vector Evaluate(const FlowNetLayout& net, const Vector& state,
                                                    const Inputs& inputs, LayerSums& sums,
                                                    uint32_t& unfit) {
    Base::First(net, state, inputs, sums, unfit);
#pragma unroll 1
    for (int l = 0; l < net.squares; ++l) Square(net, l, Activated(net, l, sums), sums);
    return Base::Last(net, sums);
  }

 private:
  struct Halves {
    Hidden high, low;
  };

  static __device__ __forceinline__ Halves Activated(const FlowNetLayout& net, int layer,
                                                     const LayerSums& sums) {
    Halves x;
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      const float2 slopes = Base::Slopes(net, layer, i);
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) {
        const float x0 = Act::Apply(sums.v[i][2 * m], slopes.x);
        const float x1 = Act::Apply(sums.v[i][2 * m + 1], slopes.y);
        const __half2 high = __floats2half2_rn(x0, x1);
        x.high.a[i / 2].halves[i % 2 * 2 + m] = *reinterpret_cast<const uint32_t*>(&high);
        x.low.a[i / 2].halves[i % 2 * 2 + m] =
            PackHalves(x0 - __low2float(high), x1 - __high2float(high));
      }
    }
    return x;
  }

  static __device__ __forceinline__ void Square(const FlowNetLayout& net, int square,
                                                const Halves& x, LayerSums& sums) {
    constexpr int kDepths = kWidth + 16;
    constexpr int kSteps = kWidth / 16;
    const Tiles high(Base::Address(net.square) + square * kWidth * kDepths * 2,
                     kDepths / 8 * kFlowTileBytes);
    const Tiles low(Base::Address(net.square_low) + square * kWidth * kWidth * 2,
                    kWidth / 8 * kFlowTileBytes);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) AddStep(sums, x.low.a[k], high, k, k);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) AddStep(sums, x.high.a[k], low, k, 1);
#pragma unroll
    for (int k = 0; k <= kSteps; ++k) {
      AddStep(sums, k < kSteps ? x.high.a[k] : Base::Ones(), high, k, 1);
    }
    EndProducts(sums);
  }
};

}  // namespace hyperserve::kernels
