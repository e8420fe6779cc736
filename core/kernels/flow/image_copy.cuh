// The copy of a flow's image to shared memory, in two parts: a block may begin with what its first
// layers read while the rest is under way. All threads of the block call these functions together,
// each once or, AwaitSecond, as often as they like.
#pragma once

#include <cstdint>

#include "core/kernels/flow/mma.cuh"

namespace hyperserve::kernels {

// Shared memory: the image, then the vectors of each warp.
extern __shared__ uint4 flow_shared[];

class ImageCopy {
 public:
  // Bytes [0, middle) are the first part, [middle, end) the second: multiples of 16.
  static __device__ __forceinline__ void Start(const uint4* image, uint32_t middle, uint32_t end) {
    StartPart(image, 0, middle);
    StartPart(image, middle, end);
  }

  static __device__ __forceinline__ void AwaitFirst() { AwaitAllBut<1>(); }
  static __device__ __forceinline__ void AwaitSecond() { AwaitAllBut<0>(); }

 private:
  static __device__ __forceinline__ void StartPart(const uint4* image, uint32_t begin,
                                                   uint32_t end) {
#pragma unroll 4
    for (uint32_t i = begin / 16 + threadIdx.x; i < end / 16; i += blockDim.x) {
      const uint32_t target = static_cast<uint32_t>(__cvta_generic_to_shared(flow_shared + i));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(image + i)
                   : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  template <int kParts>
  static __device__ __forceinline__ void AwaitAllBut() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kParts) : "memory");
    PublishToProducts();
    __syncthreads();
  }
};

}  // namespace hyperserve::kernels
