// Products of pixels and weights, both in shared memory, on the tensor cores: D [64, n] += A [64,
// 16] B [16, n] by the four warps of a warpgroup; a warp has 16 of the pixels. With g = lane / 4
// and q = lane % 4, a lane holds of D, per eight columns, floats (g; 2q), (g; 2q+1), (g+8; 2q),
// (g+8; 2q+1).
//
// A stands in planes of eight channels, 16 bytes a pixel: eight neighbouring pixels are a tile of
// 128 bytes, at any multiple of 16 bytes, so that a tap of a convolution is a constant shift. B
// stands in tiles of eight outputs by eight inputs.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HYPERSERVE_CONV_WGMMA 1
#else
#define HYPERSERVE_CONV_WGMMA 0
#endif

namespace hyperserve::kernels {

// AddStep adds a step of sixteen channels, its operands moved by so many units of 16 bytes.
template <int kColumns>
struct PixelSums {
  float v[kColumns / 8][4];
};

// A step's pixels in registers, wherever each of them stands. `pixel`: the address of pixel
// lane % 16 of the warp in the first of two planes, or, of lanes from 16 on, in the second.
__device__ __forceinline__ void LoadPixels(uint32_t pixel, uint32_t (&a)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(pixel)
               : "memory");
}

#if HYPERSERVE_CONV_WGMMA

// Both operands as the hardware describes them, in units of 16 bytes: an address below 2^18 and the
// distance of neighbouring tiles in depth, then that in pixels or outputs.
struct ConvOperands {
  // Addresses in shared memory and distances in bytes. `plane`: from a plane to the next; `stride`:
  // of B, from eight outputs to the next eight.
  __device__ ConvOperands(uint32_t a, uint32_t plane, uint32_t b, uint32_t stride)
      : a((a & 0x3FFFFu) >> 4 | plane << 12),
        b((b & 0x3FFFFu) >> 4 | (128u >> 4) << 16),
        b_stride(stride >> 4) {}
  uint32_t a, b, b_stride;
};

#define HS_SUMS(i) "+f"(d.v[i][0]), "+f"(d.v[i][1]), "+f"(d.v[i][2]), "+f"(d.v[i][3])
#define HS_ADD(columns, registers, a_low, a_high, b_low, b_high, ...)                            \
  __device__ __forceinline__ void AddStep(PixelSums<columns>& d, const ConvOperands& o,          \
                                          uint32_t a_move, uint32_t b_move) {                    \
    asm volatile("{ .reg .pred keep; .reg .b64 a, b; setp.eq.u32 keep, 0, 0; mov.b64 a, {" a_low \
                 ", " a_high "}; mov.b64 b, {" b_low ", " b_high                                 \
                 "}; wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.f16.f16 {" registers   \
                 "}, a, b, keep, 1, 1, 0, 0; }"                                                  \
                 : __VA_ARGS__                                                                   \
                 : "r"(o.a + a_move), "r"(128 >> 4), "r"(o.b + b_move), "r"(o.b_stride));        \
  }

#define HS_R16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define HS_R32 HS_R16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define HS_R48 HS_R32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define HS_R64 HS_R48 ", %24, %25, %26, %27, %28, %29, %30, %31"
HS_ADD(32, HS_R32, "%16", "%17", "%18", "%19", HS_SUMS(0), HS_SUMS(1), HS_SUMS(2), HS_SUMS(3))
HS_ADD(48, HS_R48, "%24", "%25", "%26", "%27", HS_SUMS(0), HS_SUMS(1), HS_SUMS(2), HS_SUMS(3),
       HS_SUMS(4), HS_SUMS(5))
HS_ADD(64, HS_R64, "%32", "%33", "%34", "%35", HS_SUMS(0), HS_SUMS(1), HS_SUMS(2), HS_SUMS(3),
       HS_SUMS(4), HS_SUMS(5), HS_SUMS(6), HS_SUMS(7))

// The same of pixels in registers.
__device__ __forceinline__ void AddStep(PixelSums<32>& d, const uint32_t (&pixels)[4],
                                        const ConvOperands& o, uint32_t b_move) {
  asm volatile(
      "{ .reg .pred keep; .reg .b64 b; setp.eq.u32 keep, 0, 0; mov.b64 b, {%20, %21}; "
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" HS_R32
      "}, {%16, %17, %18, %19}, b, keep, 1, 1, 0; }"
      : HS_SUMS(0), HS_SUMS(1), HS_SUMS(2), HS_SUMS(3)
      : "r"(pixels[0]), "r"(pixels[1]), "r"(pixels[2]), "r"(pixels[3]), "r"(o.b + b_move),
        "r"(o.b_stride));
}

// Before AddSteps that follow other uses of the sums.
template <int kColumns>
__device__ __forceinline__ void BeginPixelSums(PixelSums<kColumns>& d) {
#pragma unroll
  for (int i = 0; i < kColumns / 8; ++i) asm volatile("" : HS_SUMS(i)::"memory");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// After them.
__device__ __forceinline__ void EndPixelSums() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// What was added is done, and nothing reads the sums before.
template <int kColumns>
__device__ __forceinline__ void AwaitPixelSums(PixelSums<kColumns>& d) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < kColumns / 8; ++i) asm volatile("" : HS_SUMS(i)::"memory");
}

// Shared memory that threads wrote becomes visible to products, before the barrier that follows.
__device__ __forceinline__ void PublishToPixelSums() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#undef HS_R16
#undef HS_R32
#undef HS_R48
#undef HS_R64
#undef HS_ADD
#undef HS_SUMS

#else

struct ConvOperands {
  __device__ ConvOperands(uint32_t a, uint32_t plane, uint32_t b, uint32_t stride)
      : a(a), plane(plane), b(b), stride(stride) {}
  uint32_t a, plane, b, stride;
};

template <int kColumns>
__device__ __forceinline__ void AddStep(PixelSums<kColumns>& d, const uint32_t (&a)[4],
                                        const ConvOperands& o, uint32_t b_move) {
  const uint32_t lane = threadIdx.x % 32;
  // Four tiles at once: two of outputs, two of inputs; eight lanes name the rows of each.
  const uint32_t weight =
      o.b + b_move * 16 + lane / 8 % 2 * 128 + lane / 16 * o.stride + lane % 8 * 16;
#pragma unroll
  for (int i = 0; i < kColumns / 8; i += 2) {
    uint32_t b[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(weight + i * o.stride));
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float(&v)[4] = d.v[i + j];
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * j]), "r"(b[2 * j + 1]));
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void AddStep(PixelSums<kColumns>& d, const ConvOperands& o,
                                        uint32_t a_move, uint32_t b_move) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  uint32_t a[4];
  LoadPixels(o.a + a_move * 16 + (lane / 16) * o.plane + (warp * 16 + lane % 16) * 16, a);
  AddStep(d, a, o, b_move);
}

template <int kColumns>
__device__ __forceinline__ void BeginPixelSums(PixelSums<kColumns>&) {}
__device__ __forceinline__ void EndPixelSums() {}
template <int kColumns>
__device__ __forceinline__ void AwaitPixelSums(PixelSums<kColumns>&) {}
__device__ __forceinline__ void PublishToPixelSums() {}

#endif

}  // namespace hyperserve::kernels
