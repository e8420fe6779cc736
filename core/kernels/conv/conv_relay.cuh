// Layers of an image that several blocks share, without a wait for all of a layer: the warpgroups
// of a block take one tile after the other, of one layer after the other, and each starts as soon
// as the tiles around it are there. Layers read one of two sets of planes and write the other.
#pragma once

#include <cstdint>

#include "core/kernels/conv/conv_barrier.cuh"
#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_layers.cuh"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/kernels/conv/conv_products.cuh"
#include "core/kernels/conv/conv_sums.cuh"

namespace hyperserve::kernels {

// Every thread has one. Planes are written in passes, from 0 on: pass p writes set p % 2 and reads
// what pass p - 1 wrote. Weights come in the order of layers, from 0 on: those of layer n stand at
// place n % 2.
//
// Why nothing is overwritten before it is read: a tile of pass p waits for the tiles around it of
// pass p - 1, which are those that read what stood in its place. A block sends rows of pass p when
// it has that neighbour's rows of pass p - 1; they come from the tiles that read what stood in
// their place, since the rows above belong to the first tile alone (pitch <= kTilePixels).
class ConvRelay : public ConvLayers {
 public:
  explicit __device__ ConvRelay(const ConvLaunch& launch) : ConvLayers(launch) {}

  // Once, by all threads together. layer_of(n): the index of layer n.
  template <class LayerOf>
  __device__ __forceinline__ void Prepare(int layers, const LayerOf& layer_of) {
    planes_.Clear();
    planes_.CountArrivalsAt(rest_);
    if (threadIdx.x == 0) {
      for (int i = 0; i < 4; ++i) ConvBarrier(rest_ + 8 * i).Make(1);
      for (int i = 0; i < 2; ++i) Weights(i).Make(1), Used(i).Make(128 * tiles());
      for (int i = 0; i < 2 * kTilesMax; ++i) Written(i % 2, i / 2).Make(128);
      ConvBarrier::PublishMade();
      PublishToPixelSums();
      for (int n = 0; n < min(layers, 2); ++n) FetchWeights(n, layer_of(n));
    }
    if (Group() == kConvGroups - 1) PassTurn();
  }

  // The tile whose turn is at `position` of a pass. From one end to the other, so that a tile comes
  // all but a whole pass after those that it waits for; blocks beside each other go in opposite
  // directions, so that tiles that exchange rows have the same position.
  __device__ __forceinline__ int TileOf(int position) const {
    return planes_.rank() % 2 == 0 ? tiles() - 1 - position : position;
  }

  // What a tile of pass p reads is there, and nobody reads what it overwrites. The pass before sent
  // so many channels of each outer pixel.
  __device__ __forceinline__ void AwaitAround(uint32_t pass, int position, int tile, int sent) {
    planes_.WriteTo(pass % 2);
    if (tiles() == 1) AwaitTurn();
    if (pass == 0) return;
    const uint32_t set = (pass - 1) % 2, use = (pass - 1) / 2;
    for (int i = max(tile - 1, 0); i <= min(tile + 1, tiles() - 1); ++i) Written(set, i).Await(use);
    // After that wait: all tiles of two passes ago have had their turns, so they have seen the rows
    // that they waited for, and this use of the counters has begun.
    if (position == 0) ExpectRows(set, sent);
    const bool at_end = tile >= planes_.FirstTileAtEnd();
    if (tile == 0) AwaitRows(set, use, ConvSide::kAbove);
    if (at_end) AwaitRows(set, use, ConvSide::kBelow);
    // Rows of other blocks: what this block wrote its writers have published.
    if (tile == 0 || at_end) PublishToPixelSums();
  }

  // After AwaitAround. A wait that is two uses ahead of its barrier would end at once: where a pass
  // has but one tile, turns come before waits, so that the passes before have made theirs.
  __device__ __forceinline__ void TakeTurn() const {
    if (tiles() > 1) AwaitTurn();
  }

  // This thread has written its part of a tile of pass p. One lane could arrive for its warp, which
  // takes as long, but compute-sanitizer's racecheck does not follow that.
  __device__ __forceinline__ void TellWritten(uint32_t pass, int tile) const {
    PublishToPixelSums();
    Written(pass % 2, tile).Arrive();
  }
  // And does not need the weights of layer n any more.
  __device__ __forceinline__ void TellUsed(uint32_t n) const { Used(n % 2).Arrive(); }

  // After all else: rows of pass p have arrived, and no more will.
  __device__ __forceinline__ void AwaitLastRows(uint32_t pass, int sent) {
    const uint32_t set = pass % 2, use = pass / 2;
    ExpectRows(set, sent);
    AwaitRows(set, use, ConvSide::kAbove);
    AwaitRows(set, use, ConvSide::kBelow);
  }

  // By the warpgroup of the last tile of layer n: the weights of layer n + 2, whose index is
  // `index`, take the place of those of layer n once no tile needs them.
  __device__ __forceinline__ void FetchAfterNext(uint32_t n, int index) const {
    if (threadIdx.x / 32 % 4 != 0) return;
    Used(n % 2).Await(n / 2);
    if (ConvPlanes::Lane() == 0) FetchWeights(n + 2, index);
    __syncwarp();
  }

  // A tile of layer n, whose index is `index`; an activation follows.
  __device__ __forceinline__ void RunHidden(uint32_t n, int index, float depth, int tile) {
    switch (launch_.layout.layers[index].outputs) {
      case 32:
        return HiddenTile<32>(n, index, depth, tile);
      case 48:
        return HiddenTile<48>(n, index, depth, tile);
      default:
        return HiddenTile<64>(n, index, depth, tile);
    }
  }

  // A tile of layer n, the last of a net: load(z), then the products, then end(sums, z, pairs),
  // where `pairs` go into the planes.
  template <class Load, class End>
  __device__ __forceinline__ void RunLast(uint32_t n, int index, float depth, int tile,
                                          const Load& load, const End& end) {
    RunTile<kConvChannelsMax>(n, index, depth, tile, load,
                              [&](const ConvLayerLayout&, const float*, StateSums& sums,
                                  StateSums& z, StatePairs& pairs) { end(sums, z, pairs); });
  }

 private:
  static __device__ __forceinline__ int Group() { return ConvPlanes::Group(); }

  // After the four counters of arrivals.
  __device__ __forceinline__ ConvBarrier Weights(uint32_t place) const {
    return ConvBarrier(rest_ + 8 * (4 + place));
  }
  __device__ __forceinline__ ConvBarrier Used(uint32_t place) const {
    return ConvBarrier(rest_ + 8 * (6 + place));
  }
  __device__ __forceinline__ ConvBarrier Written(uint32_t set, int tile) const {
    return ConvBarrier(rest_ + 8 * (8 + set * kTilesMax + tile));
  }

  __device__ __forceinline__ void FetchWeights(uint32_t n, int index) const {
    const ConvLayerLayout& layer = launch_.layout.layers[index];
    const ConvBarrier there = Weights(n % 2);
    there.Expect(layer.bytes);
    there.Copy(weights_.place(n % 2), launch_.image + layer.offset / 16, layer.bytes);
  }

  __device__ __forceinline__ void ExpectRows(uint32_t set, int sent) const {
    if (threadIdx.x % 128 != 0) return;
    const uint32_t bytes = launch_.layout.width * sent * 2;
    for (const ConvSide side : {ConvSide::kAbove, ConvSide::kBelow}) {
      if (planes_.Has(side)) ConvBarrier(planes_.ArrivalsOf(set, side)).Expect(bytes);
    }
  }
  __device__ __forceinline__ void AwaitRows(uint32_t set, uint32_t use, ConvSide side) const {
    if (planes_.Has(side)) ConvBarrier(planes_.ArrivalsOf(set, side)).AwaitOthers(use);
  }

  template <int kOutputs>
  __device__ __forceinline__ void HiddenTile(uint32_t n, int index, float depth, int tile) {
    RunTile<kOutputs>(
        n, index, depth, tile, [](PixelSums<kOutputs>&) {},
        [&](const ConvLayerLayout& layer, const float* numbers, PixelSums<kOutputs>& sums,
            PixelSums<kOutputs>&,
            uint32_t(&pairs)[kOutputs / 4]) { Activate(layer, numbers, sums, pairs); });
  }

  template <int kOutputs, class Load, class End>
  __device__ __forceinline__ void RunTile(uint32_t n, int index, float depth, int tile,
                                          const Load& load, const End& end) {
    const ConvLayerLayout& layer = launch_.layout.layers[index];
    weights_.Use(n % 2);
    PixelSums<kOutputs> z, sums;
    load(z);  // on its way beside the products
    Weights(n % 2).Await(n / 2);
    TakeTurn();
    Multiply<kOutputs, 9>(layer, weights_.now(), tile, sums);
    PassTurn();
    AwaitPixelSums(sums);
    const float* numbers = FloatsOf(layer);
    AddBias(layer, numbers, depth, tile, sums);
    uint32_t pairs[kOutputs / 4];
    end(layer, numbers, sums, z, pairs);
    planes_.Write<kOutputs>(kBefore, tile, pairs);
  }
};

}  // namespace hyperserve::kernels
