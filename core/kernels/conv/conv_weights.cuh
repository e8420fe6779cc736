// Weights of layers on their way into shared memory: those of the next layer come while one runs.
#pragma once

#include <cstdint>

#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_planes.cuh"

namespace hyperserve::kernels {

// Two places for the weights of a layer, one after the other in shared memory. Every thread has
// one, and all call its functions together.
class ConvWeights {
 public:
  __device__ ConvWeights(const ConvLaunch& launch, uint32_t first)
      : launch_(launch), first_(first) {}

  __device__ __forceinline__ uint32_t end() const {
    return first_ + 2 * launch_.layout.layer_bytes;
  }

  // Those in use.
  __device__ __forceinline__ uint32_t now() const { return PlaceOf(turn_); }

  // Starts copying those of the first layer to the place in use.
  __device__ __forceinline__ void FetchNow(int index) const { Copy(index, 0, now()); }

  // Starts copying those of a layer, or of a part of it, to the other place.
  __device__ __forceinline__ void Fetch(int index, int part = 0) const {
    Copy(index, part, PlaceOf(turn_ ^ 1));
  }

  // This thread's copies are there.
  static __device__ __forceinline__ void Await() {
    asm volatile("cp.async.wait_all;" ::: "memory");
  }

  // The other place comes into use, when all threads have awaited their copies.
  __device__ __forceinline__ void Turn() { turn_ ^= 1; }

  // Place 0 or 1 comes into use.
  __device__ __forceinline__ void Use(uint32_t place) { turn_ = place; }
  __device__ __forceinline__ uint32_t place(uint32_t place) const { return PlaceOf(place); }

  // The place in use is that of `before`, which has the same places.
  __device__ __forceinline__ void GoOn(const ConvWeights& before) { turn_ = before.turn_; }

 private:
  __device__ __forceinline__ uint32_t PlaceOf(uint32_t turn) const {
    return first_ + turn * launch_.layout.layer_bytes;
  }

  __device__ __forceinline__ void Copy(int index, int part, uint32_t to) const {
    const ConvLayerLayout& layer = launch_.layout.layers[index];
    const uint4* from = launch_.image + (layer.offset + part * layer.bytes) / 16;
    for (uint32_t i = threadIdx.x; i < layer.bytes / 16; i += kConvThreads) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i * 16), "l"(from + i)
                   : "memory");
    }
  }

  const ConvLaunch& launch_;
  const uint32_t first_;
  uint32_t turn_ = 0;
};

}  // namespace hyperserve::kernels
