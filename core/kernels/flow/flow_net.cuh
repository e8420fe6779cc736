// One evaluation of a net on the 16 rows of a warp, together with the other warps of its warpgroup.
// Hidden numbers live in registers: a layer's sums, activated and rounded, are the operands of the
// next product.
#pragma once

#include <type_traits>

#include "core/kernels/flow/activations.cuh"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/image_copy.cuh"
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

template <class T>
__device__ __forceinline__ const T* Image(uint32_t offset) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(flow_shared) + offset);
}

// The vectors of one warp, [slot][part][lane row][half][lane]; each lane sees its own part alone.
// Part 0 is a value, the others are its tangents.
template <int kHalves, int kParts>
class LaneVectors {
 public:
  static constexpr int kPartFloats = kLaneRows * kHalves * 32;
  static constexpr int kSlotFloats = kParts * kPartFloats;

  __device__ explicit LaneVectors(float* of_warp) : mine_(of_warp + threadIdx.x % 32) {}

  __device__ __forceinline__ LaneVector<kHalves> Load(int slot, int part = 0) const {
    LaneVector<kHalves> x;
#pragma unroll
    for (int i = 0; i < kLaneRows * kHalves; ++i) {
      x.v[i / kHalves][i % kHalves] = mine_[slot * kSlotFloats + part * kPartFloats + i * 32];
    }
    return x;
  }
  __device__ __forceinline__ void Store(int slot, const LaneVector<kHalves>& x, int part = 0) {
#pragma unroll
    for (int i = 0; i < kLaneRows * kHalves; ++i) {
      mine_[slot * kSlotFloats + part * kPartFloats + i * 32] = x.v[i / kHalves][i % kHalves];
    }
  }
  __device__ __forceinline__ float& Number(int slot, int row, int half) const {
    return mine_[slot * kSlotFloats + (row * kHalves + half) * 32];
  }

 private:
  float* mine_;
};

// kWidth: of hidden layers, padded; kOutputs: of the last, padded; kParts: of the vectors.
template <FlowActivation kActivation, int kWidth, int kOutputs, int kParts = 1,
          FlowPrecision kPrecision = FlowPrecision::kFast>
class FlowNetDevice {
 public:
  static constexpr int kHalves = (kOutputs + 3) / 4;
  using Vector = LaneVector<kHalves>;
  using State = Vector;
  using Vectors = LaneVectors<kHalves, kParts>;
  using LayerSums = Sums<kWidth>;
  // Of the matrix of a square layer, whose last step has the bias.
  static constexpr int kDepths = kWidth + 16;
  static constexpr uint32_t kSquareBytes = kWidth * kDepths * 2;

  // What a net reads beside the state that it is evaluated at.
  struct Inputs {
    Vectors vectors;
    float step;
    float depth[kLaneRows];
  };

  static __device__ __forceinline__ State StateOf(const Vector& z) { return z; }
  static __device__ __forceinline__ const Vector& ValueOf(const State& x) { return x; }
  static __device__ __forceinline__ Vector& ValueIn(State& x) { return x; }
  // y += a coefficient (FlowTableAccess) times x.
  template <class Table>
  static __device__ __forceinline__ void AddProduct(const Table& table, int i, int column,
                                                    const State& x, State& y) {
    table.AddProduct(i, column, x, y);
  }
  static __device__ __forceinline__ State Load(const Vectors& vectors, int slot) {
    return vectors.Load(slot);
  }
  static __device__ __forceinline__ void Store(Vectors& vectors, int slot, const State& x) {
    vectors.Store(slot, x);
  }

  // Bit m of `unfit` is set where lane row m has an input beyond the layout's bound. `sums` is
  // where layers are summed up: its numbers don't matter, but one place for the whole kernel saves
  // registers.
  static __device__ __forceinline__ Vector Evaluate(const FlowNetLayout& net, const Vector& state,
                                                    const Inputs& inputs, LayerSums& sums,
                                                    uint32_t& unfit) {
    First(net, state, inputs, sums, unfit);
#pragma unroll 1
    for (int l = 0; l < net.squares; ++l) Square(net, l, Activated(net, l, sums), sums);
    return Last(net, sums);
  }

 protected:
  using Act = std::conditional_t<kPrecision == FlowPrecision::kExact,
                                 ExactActivationOf<kActivation>, ActivationOf<kActivation>>;
  static constexpr int kSteps = kWidth / 16;
  static constexpr uint32_t kOne = 0x3C00;  // as a half

  struct Hidden {
    OperandA a[kSteps];
  };
  enum class Bias { kNone, kAdd };

  static __device__ __forceinline__ uint32_t Address(uint32_t offset) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(flow_shared)) + offset;
  }

  // The first layer's sums: products of split halves, a step for each half of each vector.
  static __device__ __forceinline__ void First(const FlowNetLayout& net, const Vector& state,
                                               const Inputs& inputs, LayerSums& sums,
                                               uint32_t& unfit) {
    ForEachInput(net, state, inputs, unfit, [&](const Vector& x, int step, Bias bias) {
      AddVector(net, x, step, bias, sums);
    });
  }

  // add(x, step, bias): of each vector that the net reads, its first step of the first layer, and
  // whether the bias comes with it.
  template <class Add>
  static __device__ __forceinline__ void ForEachInput(const FlowNetLayout& net, const Vector& state,
                                                      const Inputs& inputs, uint32_t& unfit,
                                                      const Add& add) {
    Check(net, state, unfit);
    add(state, 0, Bias::kAdd);
#pragma unroll 1
    for (int i = 0; i < net.inputs; ++i) {
      const int slot = Image<int>(net.list)[i];
      Vector x;
      if (slot == kSlotConstants) {
        const int q = threadIdx.x % 4;
#pragma unroll
        for (int m = 0; m < kLaneRows; ++m) {
          x.v[m][0] = q == 0 ? inputs.step : q == 1 ? inputs.depth[m] : 0.0f;
        }
      } else {
        x = inputs.vectors.Load(slot);
      }
      Check(net, x, unfit);
      add(x, (i + 1) * kHalves, Bias::kNone);
    }
  }

  static __device__ __forceinline__ void Check(const FlowNetLayout& net, const Vector& x,
                                               uint32_t& unfit) {
#pragma unroll
    for (int i = 0; i < kHalves * kLaneRows; ++i) {
      // Written so that what is not a number is unfit, too.
      if (!(fabsf(x.v[i / kHalves][i % kHalves]) <= net.input_max)) unfit |= 1u << i / kHalves;
    }
  }

  static __device__ __forceinline__ void AddVector(const FlowNetLayout& net, const Vector& x,
                                                   int step, Bias bias, LayerSums& sums) {
    OperandA a[kHalves];
    SplitVector(x, bias, a);
    BeginProducts();
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      AddStep(sums, a[h], Tiles(Address(net.first) + (step + h) * kWidth * 32, 2 * kFlowTileBytes),
              0, step + h);
    }
    EndProducts(sums);
  }

  static __device__ __forceinline__ void SplitVector(const Vector& x, Bias bias,
                                                     OperandA (&a)[kHalves]) {
    // A lane's last depth: one where the first step's matrix has the bias.
    const uint32_t one = bias == Bias::kAdd && threadIdx.x % 4 < 2 ? kOne << 16 : 0u;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) {
        a[h].halves[m] = SplitHalves(x.v[m][h]);
        a[h].halves[m + 2] = (a[h].halves[m] & 0xFFFFu) | (h == 0 ? one : 0u);
      }
    }
  }

  template <FlowReader kReader = FlowReader::kSquare>
  static __device__ __forceinline__ Hidden Activated(const FlowNetLayout& net, int layer,
                                                     const LayerSums& sums) {
    return ForEachPair(
        [&](int i, int m) { return ActivatedPair<kReader>(sums, i, m, Slopes(net, layer, i)); });
  }

  // pair(i, m): the halves of columns 8 i + 2 q and the next, of lane row m.
  template <class Pair>
  static __device__ __forceinline__ Hidden ForEachPair(const Pair& pair) {
    Hidden x;
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) x.a[i / 2].halves[i % 2 * 2 + m] = pair(i, m);
    }
    return x;
  }

  // The operand of a square matrix's last step, where its bias stands.
  static __device__ __forceinline__ OperandA Ones() {
    const uint32_t one = threadIdx.x % 4 == 0 ? kOne << 16 | kOne : 0u;
    return {{one, one, 0u, 0u}};
  }

  enum class Turn { kKeeps, kPasses };

  // The sums of square layer `square` (from 0). A turn passes some steps before their end, so that
  // those of the other warpgroup are there when the tensor cores are free.
  template <Bias kBias = Bias::kAdd, Turn kTurn = Turn::kKeeps>
  static __device__ __forceinline__ void Square(const FlowNetLayout& net, int square,
                                                const Hidden& x, LayerSums& sums) {
    constexpr int kStepsAfterTurn = 3;
    constexpr int kStepsInAll = kSteps + (kBias == Bias::kAdd);
    const Tiles matrix(Address(net.square) + square * kSquareBytes, kDepths / 8 * kFlowTileBytes);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kStepsInAll; ++k) {
      AddStep(sums, k < kSteps ? x.a[k] : Ones(), matrix, k, k);
      if (kTurn == Turn::kPasses && k + 1 + kStepsAfterTurn == kStepsInAll) EndPart();
    }
    EndPart();
    if constexpr (kTurn == Turn::kPasses) {
      AwaitAllButLastPart();
      ProductTurns::Pass();
    }
    AwaitProducts(sums);
  }

  // Of columns 8 i + 2 q and the next.
  static __device__ __forceinline__ float2 Slopes(const FlowNetLayout& net, int layer, int i) {
    if constexpr (Act::kSlopes) {
      return Image<float2>(net.slopes)[layer * kWidth / 2 + i * 4 + threadIdx.x % 4];
    }
    return make_float2(0.0f, 0.0f);
  }

  // Of columns 8 i + 2 q and the next, of lane row m.
  template <FlowReader kReader>
  static __device__ __forceinline__ uint32_t ActivatedPair(const LayerSums& sums, int i, int m,
                                                           const float2& slopes) {
    return ActivatedHalves<kReader>(sums.v[i][2 * m], sums.v[i][2 * m + 1], slopes);
  }
  template <FlowReader kReader>
  static __device__ __forceinline__ uint32_t ActivatedHalves(float a, float b,
                                                             const float2& slopes) {
    return PackHalves(ActivatedFor<Act, kReader>(a, slopes.x),
                      ActivatedFor<Act, kReader>(b, slopes.y));
  }

  static __device__ __forceinline__ Vector Last(const FlowNetLayout& net, const LayerSums& sums) {
    const Hidden x = Activated<FlowReader::kLast>(net, net.squares, sums);
    LastSums y;
    BeginProducts();
    AddLast(net, x, y);
    EndPart();
    return OutputsOf(net, y);
  }

  // Of the last layer, whose columns are the high and the low half of each output's weights: the
  // lane's part of two sums, of every other step, that need not wait for each other.
  struct LastSums {
    Sums<8 * kHalves> of[2];
  };
  static __device__ __forceinline__ Tiles LastMatrix(const FlowNetLayout& net) {
    return {Address(net.last), kHalves == 1 ? 0u : kWidth / 8 * kFlowTileBytes};
  }
  static __device__ __forceinline__ void AddLast(const FlowNetLayout& net, const Hidden& x,
                                                 LastSums& y) {
    const Tiles matrix = LastMatrix(net);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) AddNarrowStep(y.of[k % 2], x.a[k], matrix, k, k / 2);
  }
  // Once the products are done.
  static __device__ __forceinline__ Vector OutputsOf(const FlowNetLayout& net, LastSums& y) {
    AwaitProducts(y.of[0]);
    AwaitProducts(y.of[1]);
    return WithBias(net, Added(y));
  }
  static __device__ __forceinline__ Vector Added(const LastSums& y) {
    Vector x;
#pragma unroll
    for (int m = 0; m < kLaneRows; ++m) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const float(&even)[4] = y.of[0].v[h], (&odd)[4] = y.of[1].v[h];
        x.v[m][h] = (even[2 * m] + odd[2 * m]) + (even[2 * m + 1] + odd[2 * m + 1]);
      }
    }
    return x;
  }

  static __device__ __forceinline__ Vector WithBias(const FlowNetLayout& net, Vector y) {
#pragma unroll
    for (int i = 0; i < kHalves * kLaneRows; ++i) {
      y.v[i / kHalves][i % kHalves] +=
          Image<float>(net.last_bias)[threadIdx.x % 4 + 4 * (i % kHalves)];
    }
    return y;
  }
};

}  // namespace hyperserve::kernels
