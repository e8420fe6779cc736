// What the kernels of fused convolutional solves share: an image to a block, or to a cluster of
// blocks that have some of its rows each; layers from planes to planes; vectors of the state's size
// in scratch memory.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/kernels/conv/conv_products.cuh"
#include "core/kernels/conv/conv_sums.cuh"
#include "core/kernels/conv/conv_weights.cuh"
#include "core/kernels/flow/flow_rows.h"

namespace hyperserve::kernels {

// The lane's part of eight numbers, one for a channel.
__device__ __forceinline__ float2 PairOf(const float* numbers, int i) {
  return *reinterpret_cast<const float2*>(numbers + 8 * i + 2 * (ConvPlanes::Lane() % 4));
}

enum class MapsEnd { kKeepsPlanes, kWritesPlanes };

// Every thread has one, and all call its functions together.
class ConvLayers {
 public:
  explicit __device__ ConvLayers(const ConvLaunch& launch)
      : launch_(launch),
        planes_(launch.layout, launch.geometry, launch.planes),
        weights_(launch, planes_.end()),
        rest_(weights_.end()) {}

  // Layers on other planes with the weights of `before`.
  __device__ ConvLayers(const ConvLaunch& launch, const ConvLayers& before)
      : launch_(launch),
        planes_(launch.layout, launch.geometry, launch.planes),
        weights_(before.weights_),
        rest_(planes_.end()) {}

  // Goes on after layers of `before`. The weights of the next layer are there.
  __device__ __forceinline__ void GoOn(const ConvLayers& before) { weights_.GoOn(before.weights_); }

  // Once for each, before ForRows of any.
  __device__ __forceinline__ void Prepare() {
    planes_.Clear();
    planes_.MakeArrivals(rest_);
  }

  __device__ __forceinline__ int tiles() const { return launch_.geometry.tiles; }
  __device__ __forceinline__ ConvPlanes& planes() { return planes_; }
  __device__ __forceinline__ const ConvPlanes& planes() const { return planes_; }

  // Calls solve(row) for each row of this block's. `first`: the layer that each starts with.
  template <class Solve>
  __device__ __forceinline__ void ForRows(int first, const Solve& solve) {
    if (ConvPlanes::Group() == kConvGroups - 1) PassTurn();
    weights_.FetchNow(first);
    planes_.AwaitBlocks();
    const int solvers = static_cast<int>(gridDim.x) / launch_.geometry.blocks;
    for (int64_t row = blockIdx.x / launch_.geometry.blocks; row < launch_.rows.count;
         row += solvers) {
      planes_.StartRow();
      if (planes_.rank() == 0 && threadIdx.x == 0) launch_.rows.unfit[row] = kRowFits;
      solve(row);
      if (!planes_.Fits()) launch_.rows.unfit[row] = kRowUnfit;
    }
    ConvWeights::Await();
    if (ConvPlanes::Group() == 0) AwaitTurn();
  }

  // A vector of this block's in the scratch memory.
  __device__ __forceinline__ float4* Vector(int index) const {
    return static_cast<float4*>(launch_.rows.scratch) +
           (static_cast<int64_t>(blockIdx.x) * launch_.vectors + index) * (kVectorFloats / 4);
  }

  // Two floats of each warp, in shared memory.
  __device__ __forceinline__ float2* WarpNumbers() const {
    return static_cast<float2*>(__cvta_shared_to_generic(rest_ + kArrivalBytes));
  }

  // Floats of the image that no layer reads.
  __device__ __forceinline__ const float* Numbers(uint32_t offset) const {
    return reinterpret_cast<const float*>(reinterpret_cast<const char*>(launch_.image) + offset);
  }

  // What make(tile, pairs) gives for each tile goes into the planes that layers read, and into
  // those of `aside`, if it is not kBefore. The first layer's weights are there then.
  template <class Make>
  __device__ __forceinline__ void Fill(int aside, const Make& make) {
    planes_.AwaitReads();  // what was written before has arrived everywhere
    for (int tile = ConvPlanes::Group(); tile < launch_.geometry.tiles; tile += kConvGroups) {
      StatePairs pairs;
      make(tile, pairs);
      if (aside != kBefore) planes_.Write<kConvChannelsMax>(aside, tile, pairs);
      planes_.Write<kConvChannelsMax>(kBefore, tile, pairs);
    }
    ConvWeights::Await();
    planes_.AwaitWrites(kConvChannelsMax, aside);
  }

  // A layer that an activation follows. Weights of layer `after` are on their way then.
  __device__ __forceinline__ void RunHidden(int index, int after, float depth) {
    switch (launch_.layout.layers[index].outputs) {
      case 32:
        return Hidden<32>(index, after, depth);
      case 48:
        return Hidden<48>(index, after, depth);
      default:
        return Hidden<64>(index, after, depth);
    }
  }

  // A layer of a readout, which silu follows, one part after the other.
  __device__ __forceinline__ void RunSilu(int index, int after) {
    const ConvLayerLayout& layer = launch_.layout.layers[index];
    uint32_t packed[kGroupTiles][kConvChannelsMax / 4] = {};
#pragma unroll 1
    for (int part = 0; part < layer.parts; ++part) {
      if (part > 0) AwaitNextPart();
      const float* numbers = FloatsOf(layer);
      const bool last = part + 1 == layer.parts;
      weights_.Fetch(last ? after : index, last ? 0 : part + 1);
      InTurns<kConvChannelsMax>(
          layer, [](int, StateSums&) {},
          [&](int t, int tile, StateSums& sums, StateSums&) {
            StatePairs pairs;
            AddBias(layer, numbers, 0.0f, tile, sums);
            PackSilu(sums, pairs);
            KeepPairs(part * Turns() + t, pairs, packed);
          });
    }
    WriteKept(packed, kBefore, layer.parts);
  }

  // The last layer of a net. For each tile load(tile, z) is called before its products, then
  // end(tile, sums, z, pairs) with the net's value in `sums`: `pairs` go into the planes. `end` may
  // write to the planes of `aside`, and does so where it is not kBefore.
  template <class Load, class End>
  __device__ __forceinline__ void RunLast(int index, int after, float depth, int aside,
                                          const Load& load, const End& end) {
    Run<kConvChannelsMax>(index, after, aside, load,
                          [&](const ConvLayerLayout& layer, const float* numbers, int tile,
                              StateSums& sums, StateSums& z, StatePairs& pairs) {
                            AddBias(layer, numbers, depth, tile, sums);
                            end(tile, sums, z, pairs);
                          });
  }

  // Maps of what is in the planes, one after the other. For each tile and map load(map, tile, z) is
  // called before its products, then end(map, tile, z, pairs) with the map's value added to z; at
  // the end also(layer, weights), for gathers. `pairs`, as the last call for a tile leaves them, go
  // into the planes with kWritesPlanes.
  template <class Load, class End, class Also>
  __device__ __forceinline__ void RunMaps(int index, int after, MapsEnd planes_end,
                                          const Load& load, const End& end, const Also& also) {
    const ConvLayerLayout& layer = launch_.layout.layers[index];
    const uint32_t weights = weights_.now();
    const uint32_t map_bytes = layer.steps_before * kConvMapStepBytes;
    weights_.Fetch(after);
    uint32_t packed[kGroupTiles][kConvChannelsMax / 4] = {};
#pragma unroll 1
    for (int t = 0, tile = ConvPlanes::Group(); tile < launch_.geometry.tiles;
         ++t, tile += kConvGroups) {
      StatePairs pairs = {};
#pragma unroll 1
      for (int map = 0; map < layer.maps; ++map) {
        StateSums z, sums;
        load(map, tile, z);
        Multiply<kConvChannelsMax, 1>(layer, weights + map * map_bytes, tile, sums);
        AwaitPixelSums(sums);
        AddScaled(1.0f, sums, z);
        end(map, tile, z, pairs);
      }
      KeepPairs(t, pairs, packed);
    }
    also(layer, weights);
    if (planes_end == MapsEnd::kWritesPlanes) return WriteKept(packed, kBefore, 1);
    ConvWeights::Await();
    planes_.AwaitReads();
    weights_.Turn();
  }

  // Adds a gather of what is in the planes to sums of a tile of a readout, whose planes are `of`;
  // the readout has a pixel for each kScale by kScale. `weights`: those of the layer.
  template <int kScale>
  __device__ __forceinline__ void AddGather(const ConvLayerLayout& layer, uint32_t weights,
                                            int gather, const ConvPlanes& of, int tile,
                                            StateSums& sums) const {
    constexpr int kParts = kScale * kScale, kStateSteps = kConvChannelsMax / 16;
    weights += (layer.maps + kParts * gather) * kConvStateMapBytes;
    const ConvOperands operands(0, 0, weights, kStateSteps * 256);
    uint32_t first = of.FirstPixel(planes_, kScale, tile);
#pragma unroll 1
    for (int k = 0; k < kStateSteps; ++k, first += 2 * launch_.geometry.plane_bytes) {
      uint32_t pixels[kParts][4];
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        LoadPixels(first + (i / 2 * launch_.geometry.pitch + i % 2) * 16, pixels[i]);
      }
      BeginPixelSums(sums);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        AddStep(sums, pixels[i], operands, i * (kConvStateMapBytes / 16) + k * 16);
      }
      EndPixelSums();
      AwaitPixelSums(sums);
    }
  }

 protected:
  template <int kOutputs>
  __device__ __forceinline__ void Hidden(int index, int after, float depth) {
    Run<kOutputs>(
        index, after, kBefore, [](int, PixelSums<kOutputs>&) {},
        [&](const ConvLayerLayout& layer, const float* numbers, int tile, PixelSums<kOutputs>& sums,
            PixelSums<kOutputs>&, uint32_t(&pairs)[kOutputs / 4]) {
          AddBias(layer, numbers, depth, tile, sums);
          Activate(layer, numbers, sums, pairs);
        });
  }

  // What follows the weights in use.
  __device__ __forceinline__ const float* FloatsOf(const ConvLayerLayout& layer) const {
    return static_cast<const float*>(__cvta_shared_to_generic(weights_.now() + layer.bias));
  }

  template <int kOutputs, class Load, class End>
  __device__ __forceinline__ void Run(int index, int after, int aside, const Load& load,
                                      const End& end) {
    const ConvLayerLayout& layer = launch_.layout.layers[index];
    const float* numbers = FloatsOf(layer);
    weights_.Fetch(after);
    uint32_t packed[kGroupTiles][kOutputs / 4] = {};
    InTurns<kOutputs>(layer, load,
                      [&](int t, int tile, PixelSums<kOutputs>& sums, PixelSums<kOutputs>& z) {
                        uint32_t pairs[kOutputs / 4];
                        end(layer, numbers, tile, sums, z, pairs);
                        KeepPairs(t, pairs, packed);
                      });
    WriteKept(packed, aside, 1);
  }

  // The most tiles that a warpgroup has.
  __device__ __forceinline__ int Turns() const {
    return (launch_.geometry.tiles + kConvGroups - 1) / kConvGroups;
  }

  // Of this group's tile t, `tile` of the block: load(tile, z), then the products with the weights
  // in use, then end(t, tile, sums, z).
  template <int kOutputs, class Load, class End>
  __device__ __forceinline__ void InTurns(const ConvLayerLayout& layer, const Load& load,
                                          const End& end) {
    const int tiles = launch_.geometry.tiles, turns = Turns();
    // Loops that are not unrolled: the code must fit into the instruction cache.
#pragma unroll 1
    for (int t = 0, tile = ConvPlanes::Group(); t < turns; ++t, tile += kConvGroups) {
      if (tile >= tiles) {
        AwaitTurn();
        PassTurn();
        continue;
      }
      PixelSums<kOutputs> z, sums;
      load(tile, z);  // on its way beside the products
      AwaitTurn();
      Multiply<kOutputs, 9>(layer, weights_.now(), tile, sums);
      PassTurn();
      AwaitPixelSums(sums);
      end(t, tile, sums, z);
    }
  }

  // Goes on to the next part's weights.
  __device__ __forceinline__ void AwaitNextPart() {
    ConvWeights::Await();
    PublishToPixelSums();
    __syncthreads();
    weights_.Turn();
  }

  // packed[part * Turns() + t]: of tile t of the group.
  template <int kPairs>
  __device__ __forceinline__ void WriteKept(const uint32_t (&packed)[kGroupTiles][kPairs],
                                            int aside, int parts) {
    ConvWeights::Await();
    planes_.AwaitReads();
    weights_.Turn();
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
#pragma unroll 1
      for (int t = 0, tile = ConvPlanes::Group(); tile < launch_.geometry.tiles;
           ++t, tile += kConvGroups) {
        uint32_t pairs[kPairs];
        TakePairs(part * Turns() + t, packed, pairs);
        planes_.Write<4 * kPairs>(kBefore, tile, pairs, part * kPairs / 2);
      }
    }
    planes_.AwaitWrites(4 * kPairs * parts, aside);
  }

  // kTaps: 9, or 1: the pixel itself.
  template <int kOutputs, int kTaps>
  __device__ __forceinline__ void Multiply(const ConvLayerLayout& layer, uint32_t weights, int tile,
                                           PixelSums<kOutputs>& sums) const {
    const int steps = layer.steps_before + layer.steps_aside;
    const uint32_t plane = launch_.geometry.plane_bytes, columns = 2 * steps;  // of tiles
    const ConvOperands operands(planes_.before(), plane, weights, columns * 128);
    const uint32_t aside = (planes_.aside(0) - planes_.before()) / 16;
    const uint32_t tap_move = kOutputs / 8 * columns * 8;
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      sums.v[i][0] = sums.v[i][1] = sums.v[i][2] = sums.v[i][3] = 0.0f;
    }
#pragma unroll 1
    for (int k = 0; k < steps; ++k) {
      const int over = k - layer.steps_before;  // from 0 on: a step of what stands aside
      const uint32_t first =
          tile * kTilePixels + (over < 0 ? k * (plane / 8) : aside + over * (plane / 8));
      BeginPixelSums(sums);
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        const int row = kTaps == 9 ? tap / 3 : 1, column = kTaps == 9 ? tap % 3 : 1;
        AddStep(sums, operands, first + row * launch_.geometry.pitch + column,
                tap * tap_move + k * 16);
      }
      EndPixelSums();
    }
  }

  template <int kOutputs>
  __device__ __forceinline__ void AddBias(const ConvLayerLayout& layer, const float* numbers,
                                          float depth, int tile, PixelSums<kOutputs>& sums) const {
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      const float2 bias = PairOf(numbers, i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        sums.v[i][2 * h] += bias.x;
        sums.v[i][2 * h + 1] += bias.y;
      }
    }
    if (!layer.constants) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* step = numbers + (2 + planes_.BorderClass(tile, h)) * kOutputs;
#pragma unroll
      for (int i = 0; i < kOutputs / 8; ++i) {
        const float2 of_step = PairOf(step, i);
        const float2 of_depth = PairOf(step + kConvBorderClasses * kOutputs, i);
        float(&v)[4] = sums.v[i];
        v[2 * h] += fmaf(launch_.steps.eps, of_step.x, depth * of_depth.x);
        v[2 * h + 1] += fmaf(launch_.steps.eps, of_step.y, depth * of_depth.y);
      }
    }
  }

  template <int kOutputs>
  __device__ __forceinline__ void Activate(const ConvLayerLayout& layer, const float* numbers,
                                           PixelSums<kOutputs>& sums,
                                           uint32_t (&packed)[kOutputs / 4]) const {
    switch (layer.activation) {
      case ConvActivation::kSoftplus:
        return PackActivated(sums, packed, [](float x) { return SoftplusFast(x); });
      case ConvActivation::kTanh:
        return PackActivated(sums, packed, [](float x) { return TanhFast(x); });
      case ConvActivation::kSilu:
        return PackActivated(sums, packed, [](float x) { return SiluFast(x); });
      case ConvActivation::kNone:
      case ConvActivation::kRectifier:
        break;
    }
    const bool rectifies = layer.activation == ConvActivation::kRectifier;
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      const float2 slope = rectifies ? PairOf(numbers + kOutputs, i) : make_float2(1.0f, 1.0f);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float x = sums.v[i][2 * h], y = sums.v[i][2 * h + 1];
        packed[2 * i + h] = PackPair(x > 0.0f ? x : slope.x * x, y > 0.0f ? y : slope.y * y);
      }
    }
  }

  const ConvLaunch& launch_;
  ConvPlanes planes_;
  ConvWeights weights_;
  const uint32_t rest_;  // in shared memory: what no planes and weights take
};

}  // namespace hyperserve::kernels
