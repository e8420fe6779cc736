// The copy of a flow's image to shared memory, in two parts: a block begins with what its first
// layers read while the rest is under way. On Hopper a thread asks for all of it, elsewhere each
// thread copies its share, and both parts come together.
#pragma once

#include <cstdint>

#include "core/kernels/flow/mma.cuh"

namespace hyperserve::kernels {

// Shared memory: the image, then the vectors of each warp.
extern __shared__ uint4 flow_shared[];

inline constexpr int kImageCopyBytes = 16;  // of shared memory, beside the image

class ImageCopy {
 public:
  // Bytes [0, middle) are the first part, [middle, end) the second: multiples of 16. All threads of
  // the block call it, once and before they part.
  static __device__ __forceinline__ void Start(const uint4* image, uint32_t middle, uint32_t end) {
#if HYPERSERVE_WGMMA
    if (threadIdx.x == 0) {
      for (int part = 0; part < 2; ++part) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(Arrival(part)) : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      StartPart(image, 0, 0, middle);
      StartPart(image, 1, middle, end);
    }
#else
    for (uint32_t i = threadIdx.x; i < end / 16; i += blockDim.x) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(Address(16 * i)),
                   "l"(image + i)
                   : "memory");
    }
#endif
  }

  // All threads of the block call it, once. What they wrote to shared memory before is there.
  static __device__ __forceinline__ void AwaitFirst() {
#if HYPERSERVE_WGMMA
    __syncthreads();  // the counters
    Await(0);
#else
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
#endif
  }

  // Whoever reads the second part calls it before, after AwaitFirst.
  static __device__ __forceinline__ void AwaitSecond() {
#if HYPERSERVE_WGMMA
    Await(1);
#endif
  }

 private:
  static __device__ __forceinline__ uint32_t Address(uint32_t offset) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(flow_shared)) + offset;
  }

#if HYPERSERVE_WGMMA
  // Where the bytes of a part are counted.
  static __device__ __forceinline__ uint32_t Arrival(int part) {
    __shared__ uint64_t arrivals[2];
    static_assert(sizeof arrivals == kImageCopyBytes);
    return static_cast<uint32_t>(__cvta_generic_to_shared(arrivals + part));
  }

  static __device__ __forceinline__ void StartPart(const uint4* image, int part, uint32_t begin,
                                                   uint32_t end) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(Arrival(part)),
                 "r"(end - begin)
                 : "memory");
    if (begin == end) return;
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(Address(begin)),
        "l"(image + begin / 16), "r"(end - begin), "r"(Arrival(part))
        : "memory");
  }

  static __device__ __forceinline__ void Await(int part) {
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], 0; "
          "selp.u32 %0, 1, 0, done; }"
          : "=r"(done)
          : "r"(Arrival(part))
          : "memory");
    }
  }
#endif
};

}  // namespace hyperserve::kernels
