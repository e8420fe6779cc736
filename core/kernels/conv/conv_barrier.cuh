// Barriers in shared memory that count arrivals and bytes (mbarrier), for the kernels of images
// that have several blocks. Below sm_90, where there are none, they do nothing.
#pragma once

#include <cstdint>

namespace hyperserve::kernels {

// Each is used again and again; its `use`, from 0 on, is what waits name.
class ConvBarrier {
 public:
  explicit __device__ ConvBarrier(uint32_t address) : address_(address) {}

#if __CUDA_ARCH__ >= 900
  __device__ __forceinline__ void Make(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_), "r"(arrivals)
                 : "memory");
  }
  // After Make, by the thread that made them: other blocks may use them after a cluster's barrier.
  static __device__ __forceinline__ void PublishMade() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ __forceinline__ void Arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_) : "memory");
  }
  // Arrives, and this use ends when so many bytes have, too.
  __device__ __forceinline__ void Expect(uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_),
                 "r"(bytes)
                 : "memory");
  }
  // Waits for what this block did.
  __device__ __forceinline__ void Await(uint32_t use) const {
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2; "
          "selp.u32 %0, 1, 0, done; }"
          : "=r"(done)
          : "r"(address_), "r"(use & 1)
          : "memory");
    }
  }
  // For what other blocks did, too.
  __device__ __forceinline__ void AwaitOthers(uint32_t use) const {
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{ .reg .pred done; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], "
          "%2; selp.u32 %0, 1, 0, done; }"
          : "=r"(done)
          : "r"(address_), "r"(use & 1)
          : "memory");
    }
  }
  // Copies to shared memory; the bytes arrive here.
  __device__ __forceinline__ void Copy(uint32_t to, const void* from, uint32_t bytes) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(address_)
        : "memory");
  }
#else
  __device__ __forceinline__ void Make(int) const {}
  static __device__ __forceinline__ void PublishMade() {}
  __device__ __forceinline__ void Arrive() const {}
  __device__ __forceinline__ void Expect(uint32_t) const {}
  __device__ __forceinline__ void Await(uint32_t) const {}
  __device__ __forceinline__ void AwaitOthers(uint32_t) const {}
  __device__ __forceinline__ void Copy(uint32_t, const void*, uint32_t) const {}
#endif

 private:
  uint32_t address_;
};

}  // namespace hyperserve::kernels
