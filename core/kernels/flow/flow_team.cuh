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
  // Two that squares read, so that a layer is written while another warp still reads the one
  // before, and one that the last layer reads.
  alignas(16) __half hidden[3][kWarpRows][kStride];
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
  using typename Base::Bias;
  using typename Base::LastSums;
  static constexpr bool kRectifies = kActivation == FlowActivation::kRectifier;

  // Gives access to what a net with rectifiers does with a pair.
  struct Rectified : FlowNetDevice<FlowActivation::kRectifier, kWidth, kOutputs> {
    using Of = FlowNetDevice<FlowActivation::kRectifier, kWidth, kOutputs>;
    using Of::ActivatedHalves;
    using Of::Slopes;
  };

 public:
  using typename Base::Inputs;
  using typename Base::Vector;
  using LayerSums = Sums<kTeamColumns>;

  // As FlowNetDevice::Evaluate, of a net whose activation is a rectifier where `rectifies`: one
  // code for both nets, which comes from far for so few rows. All warps of the block call it
  // together.
  static __device__ __forceinline__ Vector Evaluate(const FlowNetLayout& net, const Vector& state,
                                                    const Inputs& inputs, LayerSums& sums,
                                                    uint32_t& unfit, bool rectifies = kRectifies) {
    Base::ForEachInput(net, state, inputs, unfit, [&](const Vector& x, int step, Bias bias) {
      AddVector(net, x, step, bias, sums);
    });
#pragma unroll 1
    for (int l = 0; l < net.squares; ++l) {
      Hidden& hidden = TeamMemory<kWidth>().hidden[l % 2];
      Write<FlowReader::kSquare>(net, l, rectifies, sums, hidden);
      if (l == 0) ImageCopy::AwaitSecond();  // for the other warps, too
      const Columns columns = LoadSquare(net, l);
      if (l > 0) __syncthreads();
      AddSquare(columns, hidden, sums);
    }
    if (net.squares == 0) ImageCopy::AwaitSecond();  // and every warp has read what stood there
    Hidden& hidden = TeamMemory<kWidth>().hidden[2];
    Write<FlowReader::kLast>(net, net.squares, rectifies, sums, hidden);
    const LastColumns columns = LoadLast(net);
    __syncthreads();
    return Last(net, columns, hidden);
  }

 private:
  using Hidden = __half[kWarpRows][FlowTeamMemory<kWidth>::kStride];

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

  // The activated sums of hidden layer `layer`.
  template <FlowReader kReader>
  static __device__ __forceinline__ void Write(const FlowNetLayout& net, int layer, bool rectifies,
                                               const LayerSums& sums, Hidden& hidden) {
#pragma unroll
    for (int i = 0; i < kTeamColumns / 8; ++i) {
      const int tile = Warp() * (kTeamColumns / 8) + i;
      const float2 slopes =
          rectifies ? Rectified::Slopes(net, layer, tile) : make_float2(0.0f, 0.0f);
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) {
        const float a = sums.v[i][2 * m], b = sums.v[i][2 * m + 1];
        *reinterpret_cast<uint32_t*>(&hidden[Lane() / 4 + 8 * m][8 * tile + Lane() % 4 * 2]) =
            rectifies ? Rectified::template ActivatedHalves<kReader>(a, b, slopes)
                      : Base::template ActivatedHalves<kReader>(a, b, slopes);
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

  // The part of a warp's lane of step k of what a product multiplies.
  static __device__ __forceinline__ OperandA LoadHidden(const Hidden& hidden, int k) {
    const uint32_t address = static_cast<uint32_t>(
        __cvta_generic_to_shared(&hidden[Lane() % 8 + Lane() / 8 % 2 * 8][Lane() / 16 * 8]));
    OperandA a;
    LoadMatrices(address + k * 32, a.halves);
    return a;
  }

  static __device__ __forceinline__ void AddSquare(const Columns& columns, const Hidden& hidden,
                                                   LayerSums& sums) {
#pragma unroll
    for (int k = 0; k < Base::kSteps; ++k) {
      AddStep(sums, LoadHidden(hidden, k), columns.steps[k], k);
    }
    AddStep(sums, Base::Ones(), columns.steps[Base::kSteps], Base::kSteps);
  }

  // Every warp makes the last layer for itself: shorter than telling the others.
  struct LastColumns {
    OperandB steps[Base::kSteps];
  };

  static __device__ __forceinline__ LastColumns LoadLast(const FlowNetLayout& net) {
    const Tiles matrix = Base::LastMatrix(net);
    LastColumns columns;
#pragma unroll
    for (int k = 0; k < Base::kSteps; ++k) columns.steps[k] = LoadStep(matrix, k, 0);
    return columns;
  }

  static __device__ __forceinline__ Vector Last(const FlowNetLayout& net,
                                                const LastColumns& columns, const Hidden& hidden) {
    LastSums y;
#pragma unroll
    for (int k = 0; k < Base::kSteps; ++k) {
      AddStep(y.of[k % 2], LoadHidden(hidden, k), columns.steps[k], k / 2);
    }
    return Base::WithBias(net, Base::Added(y));
  }
};

}  // namespace hyperserve::kernels
