// One evaluation of a net on 16 rows by all warps of a block, for launches of few rows, whose time
// is that of one layer after the other. Each warp has a copy of the state and makes 16 columns of
// each layer; hidden numbers pass through shared memory. Every sum has the order, and every row
// therefore the bits, that FlowNetDevice gives it.
#pragma once

#include "core/kernels/flow/flow_fit.h"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/image_copy.cuh"
#include "core/kernels/flow/mma.cuh"

namespace hyperserve::kernels {

inline constexpr int kTeamColumns = 16;  // of a warp
constexpr int FlowTeamWarps(int width) { return width / kTeamColumns; }

// What the warps of a block tell each other. Rows are padded so that no two lanes of a warp that
// write at once meet in a bank.
template <int kWidth>
struct FlowTeamMemory {
  static constexpr int kStride = kWidth + 8;
  // Two, so that a layer is written while another warp still reads the one before.
  alignas(16) __half hidden[2][kWarpRows][kStride];
  float last[kWarpRows][kStride];  // hidden numbers that the last layer reads
  float outputs[kWarpRows][kFlowDimensionsMax];
};

constexpr int FlowTeamMemoryBytes(int width) {
  return static_cast<int>(width == 64 ? sizeof(FlowTeamMemory<64>) : sizeof(FlowTeamMemory<128>));
}

template <int kWidth>
__device__ __forceinline__ FlowTeamMemory<kWidth>& TeamMemory() {
  __shared__ FlowTeamMemory<kWidth> memory;
  return memory;
}

template <FlowActivation kActivation, int kWidth, int kOutputs>
class FlowTeamDevice : public FlowNetDevice<kActivation, kWidth, kOutputs> {
  using Base = FlowNetDevice<kActivation, kWidth, kOutputs>;
  using typename Base::Act;
  using typename Base::Bias;

 public:
  using typename Base::Inputs;
  using typename Base::Vector;
  using LayerSums = Sums<kTeamColumns>;

  // As FlowNetDevice::Evaluate. All warps of the block call it together.
  static __device__ __forceinline__ Vector Evaluate(const FlowNetLayout& net, const Vector& state,
                                                    const Inputs& inputs, LayerSums& sums,
                                                    uint32_t& unfit) {
    Base::ForEachInput(net, state, inputs, unfit, [&](const Vector& x, int step, Bias bias) {
      AddVector(net, x, step, bias, sums);
    });
#pragma unroll 1
    for (int l = 0; l < net.squares; ++l) {
      auto& hidden = TeamMemory<kWidth>().hidden[l % 2];
      ForEachPair(net, l, sums, [&](int row, int column, float a, float b) {
        *reinterpret_cast<uint32_t*>(&hidden[row][column]) = PackHalves(a, b);
      });
      if (l == 0) ImageCopy::AwaitSecond();
      const Columns columns = LoadSquare(net, l);
      __syncthreads();
      AddSquare(columns, hidden, sums);
    }
    auto& last = TeamMemory<kWidth>().last;
    ForEachPair(net, net.squares, sums, [&](int row, int column, float a, float b) {
      *reinterpret_cast<float2*>(&last[row][column]) = make_float2(a, b);
    });
    if (net.squares == 0) ImageCopy::AwaitSecond();
    const LastWeights weights(net);
    __syncthreads();
    Last(net, weights);
    __syncthreads();
    return Outputs();
  }

 private:
  using Hidden = __half[kWarpRows][FlowTeamMemory<kWidth>::kStride];
  static constexpr int kWarps = FlowTeamWarps(kWidth);

  static __device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x) / 32; }

  // The warp's columns of a matrix of `depths`.
  static __device__ __forceinline__ Tiles TilesOf(uint32_t matrix, int depths) {
    const uint32_t stride = static_cast<uint32_t>(depths / 8 * kFlowTileBytes);
    return {Base::Address(matrix) + static_cast<uint32_t>(Warp()) * (kTeamColumns / 8) * stride,
            stride};
  }

  static __device__ __forceinline__ void AddVector(const FlowNetLayout& net, const Vector& x,
                                                   int step, Bias bias, LayerSums& sums) {
    OperandA a[Base::kHalves];
    Base::SplitVector(x, bias, a);
#pragma unroll
    for (int h = 0; h < Base::kHalves; ++h) {
      AddStep(sums, a[h], TilesOf(net.first + (step + h) * kWidth * 32, 16), 0, step + h);
    }
  }

  // write(row, column, a, b): the activated sums of hidden layer `layer`, of a column and the next.
  template <class Write>
  static __device__ __forceinline__ void ForEachPair(const FlowNetLayout& net, int layer,
                                                     const LayerSums& sums, const Write& write) {
#pragma unroll
    for (int i = 0; i < kTeamColumns / 8; ++i) {
      const int tile = Warp() * (kTeamColumns / 8) + i;
      const float2 slopes = Base::Slopes(net, layer, tile);
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) {
        write(Lane() / 4 + 8 * m, 8 * tile + Lane() % 4 * 2, Act::Apply(sums.v[i][2 * m], slopes.x),
              Act::Apply(sums.v[i][2 * m + 1], slopes.y));
      }
    }
  }

  // The warp's columns of a square matrix, loaded while other warps still make what it multiplies.
  struct Columns {
    OperandB steps[Base::kSteps + 1];
  };

  static __device__ __forceinline__ Columns LoadSquare(const FlowNetLayout& net, int square) {
    const Tiles matrix = TilesOf(net.square + square * Base::kSquareBytes, Base::kDepths);
    Columns columns;
#pragma unroll
    for (int k = 0; k <= Base::kSteps; ++k) columns.steps[k] = LoadStep(matrix, k, 0);
    return columns;
  }

  static __device__ __forceinline__ void AddSquare(const Columns& columns, const Hidden& hidden,
                                                   LayerSums& sums) {
    const uint32_t address = static_cast<uint32_t>(
        __cvta_generic_to_shared(&hidden[Lane() % 8 + Lane() / 8 % 2 * 8][Lane() / 16 * 8]));
#pragma unroll
    for (int k = 0; k < Base::kSteps; ++k) {
      OperandA a;
      LoadMatrices(address + k * 32, a.halves);
      AddStep(sums, 0, a, columns.steps[k], k);
    }
    AddStep(sums, 0, Base::Ones(), columns.steps[Base::kSteps], Base::kSteps);
  }

  // In the last layer four lanes have a row's columns and a pair of outputs.
  static constexpr int kPairs = kOutputs / 2, kLanes = 4 * kPairs;
  static constexpr int kRows = kWarpRows / kWarps;  // of a warp
  static constexpr int kRowsAtOnce = kRows * kLanes <= 32 ? kRows : 32 / kLanes;
  static __device__ __forceinline__ bool HasLastRow() { return Lane() < kRowsAtOnce * kLanes; }
  static __device__ __forceinline__ int LastPair() { return Lane() / 4 % kPairs; }

  // Loaded like Columns.
  struct LastWeights {
    __device__ __forceinline__ explicit LastWeights(const FlowNetLayout& net) {
      if (!HasLastRow()) return;
      const float4* from = Image<float4>(net.last) + Lane() % 4 * kPairs + LastPair();
#pragma unroll
      for (int k = 0; k < kWidth / 8; ++k) of[k] = from[k * kLanes];
    }
    float4 of[kWidth / 8];
  };

  static __device__ __forceinline__ void Last(const FlowNetLayout& net,
                                              const LastWeights& weights) {
    constexpr uint32_t kInUse = 0xFFFFFFFFu >> (32 - kRowsAtOnce * kLanes);
    if (!HasLastRow()) return;
    auto& memory = TeamMemory<kWidth>();
    const int q = Lane() % 4;
#pragma unroll 1
    for (int i = 0; i < kRows; i += kRowsAtOnce) {
      const int row = Warp() * kRows + i + Lane() / kLanes;
      float y[2] = {};
#pragma unroll
      for (int k = 0; k < kWidth / 8; ++k) {
        const float2 x = *reinterpret_cast<const float2*>(&memory.last[row][8 * k + 2 * q]);
        Base::AddPair(weights.of[k], x, y[0], y[1]);
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        y[n] += __shfl_xor_sync(kInUse, y[n], 1);
        y[n] += __shfl_xor_sync(kInUse, y[n], 2);
        if (q == 0) {
          memory.outputs[row][2 * LastPair() + n] =
              y[n] + Image<float>(net.last_bias)[2 * LastPair() + n];
        }
      }
    }
  }

  static __device__ __forceinline__ Vector Outputs() {
    Vector y;
#pragma unroll
    for (int i = 0; i < kLaneRows * Base::kHalves; ++i) {
      const int row = Lane() / 4 + i / Base::kHalves * 8, n = Lane() % 4 + i % Base::kHalves * 4;
      if (n < kOutputs) {
        y.v[i / Base::kHalves][i % Base::kHalves] = TeamMemory<kWidth>().outputs[row][n];
      }
    }
    return y;
  }
};

}  // namespace hyperserve::kernels
