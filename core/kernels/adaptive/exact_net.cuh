// One evaluation of a net in tier exact on the 16 rows of a warp: hidden numbers and weights of
// square layers are a high and a low half each, and a product is three (high x high, high x low,
// low x high). First and last layer and all biases are fp32.
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
    First(net, state, inputs, sums, unfit);
#pragma unroll 1
    for (int l = 0; l < net.squares; ++l) Square(net, l, Activated(net, l, sums), sums);
    return Last(net, sums);
  }

 private:
  struct Halves {
    Hidden high, low;
  };

  // The first layer's sums, in fp32.
  static __device__ __forceinline__ void First(const FlowNetLayout& net, const Vector& state,
                                               const Inputs& inputs, LayerSums& sums,
                                               uint32_t& unfit) {
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      const float2 bias = Pair(net.biases, 0, i);
      sums.v[i][0] = sums.v[i][2] = bias.x;
      sums.v[i][1] = sums.v[i][3] = bias.y;
    }
    Base::Check(net, state, unfit);
    AddVector(net, state, 0, sums);
#pragma unroll 1
    for (int i = 0; i < net.inputs; ++i) {
      const int slot = Image<int>(net.list)[i];
      const int row = (i + 1) * Base::kHalves * 4;
      if (slot == kSlotConstants) {
        AddNumbers(net, row, {inputs.step, inputs.step}, sums);
        AddNumbers(net, row + 1, {inputs.depth[0], inputs.depth[1]}, sums);
        continue;
      }
      const Vector x = inputs.vectors.Load(slot);
      Base::Check(net, x, unfit);
      AddVector(net, x, row, sums);
    }
  }

  static __device__ __forceinline__ void AddVector(const FlowNetLayout& net, const Vector& x,
                                                   int row, LayerSums& sums) {
    const int first = static_cast<int>(threadIdx.x) % 32 & ~3;
#pragma unroll
    for (int n = 0; n < kOutputs; ++n) {
      AddNumbers(net, row + n,
                 {__shfl_sync(0xFFFFFFFFu, x.v[0][n / 4], first + n % 4),
                  __shfl_sync(0xFFFFFFFFu, x.v[1][n / 4], first + n % 4)},
                 sums);
    }
  }

  // An input of both lane rows.
  static __device__ __forceinline__ void AddNumbers(const FlowNetLayout& net, int row,
                                                    const float (&x)[kLaneRows], LayerSums& sums) {
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      const float2 weights = Pair(net.first, row, i);
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) {
        sums.v[i][2 * m] = fmaf(weights.x, x[m], sums.v[i][2 * m]);
        sums.v[i][2 * m + 1] = fmaf(weights.y, x[m], sums.v[i][2 * m + 1]);
      }
    }
  }

  // Columns 8 i + 2 q and the next of a row of floats [kWidth].
  static __device__ __forceinline__ float2 Pair(uint32_t floats, int row, int i) {
    return Image<float2>(floats)[row * kWidth / 2 + i * 4 + threadIdx.x % 4];
  }

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

  // The tensor cores cut off what a step adds beyond the digits of the sum, so that many steps lose
  // several units of the last place, and always towards zero. So the large products make two sums,
  // and the small ones come first. 64 columns at a time, for the sake of registers.
  static __device__ __forceinline__ void Square(const FlowNetLayout& net, int square,
                                                const Halves& x, LayerSums& sums) {
    constexpr int kSteps = kWidth / 16, kStride = kWidth / 8 * kFlowTileBytes;
    const float scale = Image<float>(net.square_scales)[square];
#pragma unroll
    for (int part = 0; part < kWidth / 64; ++part) {
      const uint32_t at = square * kWidth * kWidth * 2 + part * 8 * kStride;
      const Tiles high(Base::Address(net.square) + at, kStride);
      const Tiles low(Base::Address(net.square_low) + at, kStride);
      Sums<64> first, second;
      BeginProducts();
#pragma unroll
      for (int k = 0; k < kSteps; ++k) AddStep(first, x.low.a[k], high, k, k);
#pragma unroll
      for (int k = 0; k < kSteps; ++k) AddStep(first, x.high.a[k], low, k, 1);
#pragma unroll
      for (int k = 0; k < kSteps / 2; ++k) AddStep(first, x.high.a[k], high, k, 1);
#pragma unroll
      for (int k = kSteps / 2; k < kSteps; ++k) {
        AddStep(second, x.high.a[k], high, k, k - kSteps / 2);
      }
      EndProducts(first);
      EndProducts(second);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float2 bias = Pair(net.biases, square + 1, 8 * part + i);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          sums.v[8 * part + i][k] =
              fmaf(first.v[i][k] + second.v[i][k], scale, k % 2 == 0 ? bias.x : bias.y);
        }
      }
    }
  }

  // In fp32.
  static __device__ __forceinline__ Vector Last(const FlowNetLayout& net, const LayerSums& sums) {
    float y[kLaneRows][kOutputs] = {};
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      const float2 slopes = Base::Slopes(net, net.squares, i);
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) {
        AddLast(net, i,
                make_float2(Act::Apply(sums.v[i][2 * m], slopes.x),
                            Act::Apply(sums.v[i][2 * m + 1], slopes.y)),
                y[m]);
      }
    }
    return Base::WithBias(net, Reduce(y));
  }

  // y += the last layer's product with x, columns 8 i + 2 q and the next.
  static __device__ __forceinline__ void AddLast(const FlowNetLayout& net, int i, const float2& x,
                                                 float (&y)[kOutputs]) {
    const float4* weights = Image<float4>(net.last) + (i * 4 + threadIdx.x % 4) * (kOutputs / 2);
#pragma unroll
    for (int j = 0; j < kOutputs / 2; ++j) AddPair(weights[j], x, y[2 * j], y[2 * j + 1]);
  }

  static __device__ __forceinline__ void AddPair(const float4& w, const float2& x, float& y0,
                                                 float& y1) {
    y0 = fmaf(x.y, w.y, fmaf(x.x, w.x, y0));
    y1 = fmaf(x.y, w.w, fmaf(x.x, w.z, y1));
  }

  // Sums over the four lanes of a row; of them each keeps its dimensions, n % 4 == q. A lane halves
  // what it has twice: it gives away the odd or the even ones, then every other pair.
  static __device__ __forceinline__ Vector Reduce(const float (&y)[kLaneRows][kOutputs]) {
    const int q = threadIdx.x % 4;
    const bool odd = q % 2 != 0, upper = q / 2 != 0;
    Vector x;
#pragma unroll
    for (int m = 0; m < kLaneRows; ++m) {
      float pair[2 * Base::kHalves] = {};
#pragma unroll
      for (int i = 0; i < kOutputs / 2; ++i) {
        const float given = odd ? y[m][2 * i] : y[m][2 * i + 1];
        pair[i] = (odd ? y[m][2 * i + 1] : y[m][2 * i]) + __shfl_xor_sync(0xFFFFFFFFu, given, 1);
      }
#pragma unroll
      for (int h = 0; h < Base::kHalves; ++h) {
        const float given = upper ? pair[2 * h] : pair[2 * h + 1];
        x.v[m][h] =
            (upper ? pair[2 * h + 1] : pair[2 * h]) + __shfl_xor_sync(0xFFFFFFFFu, given, 2);
      }
    }
    return x;
  }
};

}  // namespace hyperserve::kernels
