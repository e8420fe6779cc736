// Products of a warp's 16 rows with a matrix in shared memory, on the tensor cores: D [16, n] += A
// [16, 16] B [16, n]. With g = lane / 4 and q = lane % 4, a lane holds
//   of A: halves (g; 2q, 2q+1), (g+8; 2q, 2q+1), (g; 2q+8, 2q+9), (g+8; 2q+8, 2q+9)
//   of D: per eight columns, floats (g; 2q), (g; 2q+1), (g+8; 2q), (g+8; 2q+1)
// so that the D of sixteen columns, rounded to halves, is the A of a step of the next product.
//
// B stands as tiles of eight columns by eight depths, the depths of a column together: 128 bytes a
// tile. Tiles that follow each other in depth are neighbours, those that follow each other in
// columns are `stride` bytes apart. AddStep takes a step of 16 depths, and forgets the sums so far
// where `keep` is 0.
//
// On Hopper a warpgroup of four warps shares B (wgmma), where there are at least 64 columns: its
// four warps call these functions together, and products are done at EndProducts.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "core/kernels/flow/flow_image.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HYPERSERVE_WGMMA 1
#else
#define HYPERSERVE_WGMMA 0
#endif

namespace hyperserve::kernels {

struct OperandA {
  uint32_t halves[4];
};

template <int kColumns>
struct Sums {
  float v[kColumns / 8][4];
};

// Rounded to nearest; `low` in the low half.
__device__ __forceinline__ uint32_t PackHalves(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// x as the sum of two halves, good to 21 bits: the high one in the low half of the word.
__device__ __forceinline__ uint32_t SplitHalves(float x) {
  return PackHalves(x, x - __half2float(__float2half_rn(x)));
}

// A matrix of tiles as the hardware describes it, in units of 16 bytes.
struct Tiles {
  __device__ Tiles(uint32_t address, uint32_t stride_bytes)
      : start(address >> 4 | kFlowTileBytes / 16 << 16), stride(stride_bytes >> 4) {}
  uint32_t start;  // the distance of neighbouring tiles in the upper half
  uint32_t stride;
};

// A lane's part of 16 columns and 16 depths of B: two tiles of depths, of eight columns and of the
// next eight.
struct OperandB {
  uint32_t halves[4];
};

// From four matrices of eight rows of 16 bytes; lanes name the rows, eight lanes a matrix.
__device__ __forceinline__ void LoadMatrices(uint32_t address, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// Of columns 8 i to 8 i + 15 and a step of depths. A matrix of eight columns has stride 0.
__device__ __forceinline__ OperandB LoadStep(const Tiles& b, int step, int i) {
  const uint32_t lane = threadIdx.x % 32;
  OperandB operand;
  LoadMatrices((b.start & 0xFFFFu) * 16 + (2 * step + lane / 8 % 2) * kFlowTileBytes +
                   (i + lane / 16) * b.stride * 16 + lane % 8 * 16,
               operand.halves);
  return operand;
}

// To the sums of one tile of columns, by the warp alone.
__device__ __forceinline__ void AddTile(float (&v)[4], const OperandA& a, uint32_t b0, uint32_t b1,
                                        int keep) {
  if (keep == 0) v[0] = v[1] = v[2] = v[3] = 0.0f;
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3])
      : "r"(a.halves[0]), "r"(a.halves[1]), "r"(a.halves[2]), "r"(a.halves[3]), "r"(b0), "r"(b1));
}

// To the sums of columns 8 i to 8 i + 15, by the warp alone.
template <int kColumns>
__device__ __forceinline__ void AddStep(Sums<kColumns>& d, int i, const OperandA& a,
                                        const OperandB& b, int keep) {
#pragma unroll
  for (int j = 0; j < 2; ++j) AddTile(d.v[i + j], a, b.halves[2 * j], b.halves[2 * j + 1], keep);
}

// To the sums of all columns, which are 8 or 16, by the warp alone.
template <int kColumns>
__device__ __forceinline__ void AddStep(Sums<kColumns>& d, const OperandA& a, const OperandB& b,
                                        int keep) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    AddTile(d.v[j], a, b.halves[2 * j], b.halves[2 * j + 1], keep);
  }
}

// By the warp alone, on any device.
template <int kColumns>
__device__ __forceinline__ void AddStep(Sums<kColumns>& d, const OperandA& a, const Tiles& b,
                                        int step, int keep) {
#pragma unroll
  for (int i = 0; i < kColumns / 8; i += 2) AddStep(d, i, a, LoadStep(b, step, i), keep);
}

#if HYPERSERVE_WGMMA

#define HS_SUMS(v) "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3])

// By a warpgroup, of a matrix of few columns.
__device__ __forceinline__ void AddNarrowStep(Sums<8>& d, const OperandA& a, const Tiles& b,
                                              int step, int keep) {
  asm volatile(
      "{ .reg .pred keep; .reg .b64 b; setp.ne.b32 keep, %10, 0; mov.b64 b, {%8, %9}; "
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, b, "
      "keep, 1, 1, 0; }"
      : HS_SUMS(d.v[0])
      : "r"(a.halves[0]), "r"(a.halves[1]), "r"(a.halves[2]), "r"(a.halves[3]),
        "r"(b.start + step * (2 * kFlowTileBytes / 16)), "r"(b.stride), "r"(keep));
}

__device__ __forceinline__ void AddNarrowStep(Sums<16>& d, const OperandA& a, const Tiles& b,
                                              int step, int keep) {
  asm volatile(
      "{ .reg .pred keep; .reg .b64 b; setp.ne.b32 keep, %14, 0; mov.b64 b, {%12, %13}; "
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, b, keep, 1, 1, 0; }"
      : HS_SUMS(d.v[0]), HS_SUMS(d.v[1])
      : "r"(a.halves[0]), "r"(a.halves[1]), "r"(a.halves[2]), "r"(a.halves[3]),
        "r"(b.start + step * (2 * kFlowTileBytes / 16)), "r"(b.stride), "r"(keep));
}

__device__ __forceinline__ void AddStep(Sums<64>& d, const OperandA& a, const Tiles& b, int step,
                                        int keep) {
  asm volatile(
      "{ .reg .pred keep; .reg .b64 b; setp.ne.b32 keep, %38, 0; mov.b64 b, {%36, %37}; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, b, keep, 1, 1, 0; }"
      : HS_SUMS(d.v[0]), HS_SUMS(d.v[1]), HS_SUMS(d.v[2]), HS_SUMS(d.v[3]), HS_SUMS(d.v[4]),
        HS_SUMS(d.v[5]), HS_SUMS(d.v[6]), HS_SUMS(d.v[7])
      : "r"(a.halves[0]), "r"(a.halves[1]), "r"(a.halves[2]), "r"(a.halves[3]),
        "r"(b.start + step * (2 * kFlowTileBytes / 16)), "r"(b.stride), "r"(keep));
}

__device__ __forceinline__ void AddStep(Sums<128>& d, const OperandA& a, const Tiles& b, int step,
                                        int keep) {
  asm volatile(
      "{ .reg .pred keep; .reg .b64 b; setp.ne.b32 keep, %70, 0; mov.b64 b, {%68, %69}; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
      "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
      "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, b, keep, 1, 1, 0; }"
      : HS_SUMS(d.v[0]), HS_SUMS(d.v[1]), HS_SUMS(d.v[2]), HS_SUMS(d.v[3]), HS_SUMS(d.v[4]),
        HS_SUMS(d.v[5]), HS_SUMS(d.v[6]), HS_SUMS(d.v[7]), HS_SUMS(d.v[8]), HS_SUMS(d.v[9]),
        HS_SUMS(d.v[10]), HS_SUMS(d.v[11]), HS_SUMS(d.v[12]), HS_SUMS(d.v[13]), HS_SUMS(d.v[14]),
        HS_SUMS(d.v[15])
      : "r"(a.halves[0]), "r"(a.halves[1]), "r"(a.halves[2]), "r"(a.halves[3]),
        "r"(b.start + step * (2 * kFlowTileBytes / 16)), "r"(b.stride), "r"(keep));
}

// Before the first AddStep of a product.
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// The steps since the last call are a part of a product of their own, for AwaitProducts.
__device__ __forceinline__ void EndPart() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// All parts but the last are done.
__device__ __forceinline__ void AwaitAllButLastPart() {
  asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}
// What was added since BeginProducts is done, and nothing reads the sums before.
template <int kColumns>
__device__ __forceinline__ void AwaitProducts(Sums<kColumns>& d) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < kColumns / 8; ++i) asm volatile("" : HS_SUMS(d.v[i])::"memory");
}
template <int kColumns>
__device__ __forceinline__ void EndProducts(Sums<kColumns>& d) {
  EndPart();
  AwaitProducts(d);
}

// Shared memory that threads wrote becomes visible to products, before the barrier that follows.
__device__ __forceinline__ void PublishToProducts() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Two warpgroups of a block that take turns: products of one run beside the activations of the
// other. Left to themselves they interleave their products and then both wait. Each makes equally
// many turns; where the block has one warpgroup, nothing happens.
class ProductTurns {
 public:
  // The first turn is that of the first warpgroup.
  static __device__ __forceinline__ void Begin() {
    if (InUse() && Group() == 1) Arrive(1);
  }
  static __device__ __forceinline__ void Take() {
    if (InUse()) Wait(1 + Group());
  }
  static __device__ __forceinline__ void Pass() {
    if (InUse()) Arrive(2 - Group());
  }
  // Takes in the turn that nobody takes.
  static __device__ __forceinline__ void End() {
    if (InUse() && Group() == 0) Wait(1);
  }

 private:
  static __device__ __forceinline__ bool InUse() { return blockDim.x == 256; }
  static __device__ __forceinline__ int Group() { return static_cast<int>(threadIdx.x) / 128; }
  static __device__ __forceinline__ void Arrive(int barrier) {
    asm volatile("barrier.cta.arrive %0, 256;" ::"r"(barrier) : "memory");
  }
  static __device__ __forceinline__ void Wait(int barrier) {
    asm volatile("barrier.cta.sync %0, 256;" ::"r"(barrier) : "memory");
  }
};

#undef HS_SUMS

#else

template <int kColumns>
__device__ __forceinline__ void AddNarrowStep(Sums<kColumns>& d, const OperandA& a, const Tiles& b,
                                              int step, int keep) {
  AddStep(d, a, LoadStep(b, step, 0), keep);
}
__device__ __forceinline__ void BeginProducts() {}
__device__ __forceinline__ void EndPart() {}
__device__ __forceinline__ void AwaitAllButLastPart() {}
template <int kColumns>
__device__ __forceinline__ void AwaitProducts(Sums<kColumns>&) {}
template <int kColumns>
__device__ __forceinline__ void EndProducts(Sums<kColumns>&) {}
__device__ __forceinline__ void PublishToProducts() {}

// Here the four warps of a scheduler find their own turns.
class ProductTurns {
 public:
  static __device__ __forceinline__ void Begin() {}
  static __device__ __forceinline__ void Take() {}
  static __device__ __forceinline__ void Pass() {}
  static __device__ __forceinline__ void End() {}
};

#endif

}  // namespace hyperserve::kernels
