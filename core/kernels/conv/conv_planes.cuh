// The part of an image that a block of the fused convolution kernel has: its planes in shared
// memory, which pixels a lane has in a tile, what blocks beside each other exchange.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "core/kernels/conv/conv_barrier.cuh"
#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_products.cuh"

namespace hyperserve::kernels {

inline constexpr int kConvGroups = 4;  // warpgroups of a block
inline constexpr int kConvThreads = kConvGroups * 128;
inline constexpr int kTilePixels = 64;                       // of one product
inline constexpr int kGroupTiles = 4;                        // the most that a warpgroup has
inline constexpr int kTilesMax = kConvGroups * kGroupTiles;  // of a block
// Counters of bytes that arrive from the blocks beside, one for each ConvAside and for kBefore.
inline constexpr int kArrivals = kBefore + 1;
inline constexpr int kArrivalBytes = 8 * kArrivals;              // of shared memory
inline constexpr int kRelayBytes = 8 * (8 + 2 * kTilesMax);      // likewise, of ConvRelay
inline constexpr int kWarpNumbersBytes = kConvThreads / 32 * 8;  // likewise
inline constexpr int kTileFloats = kTilePixels * kConvChannelsMax;
// Of a vector of the state's size in a block's scratch memory.
inline constexpr int kVectorFloats = kConvGroups * kGroupTiles * kTileFloats;

extern __shared__ __align__(128) uint4 conv_shared[];

// Blocks beside a block.
enum class ConvSide : int { kAbove, kBelow };

struct ConvPixel {
  bool valid;
  int row, column;  // row: of the block
  int place;        // in a plane
};

// Every thread has one. Functions that take a tile are called by its four warps together.
class ConvPlanes {
 public:
  // `first`: of the planes in shared memory, in bytes.
  __device__ ConvPlanes(const ConvLayout& layout, const ConvGeometry& geometry, uint32_t first)
      : layout_(layout),
        geometry_(geometry),
        rank_(static_cast<int>(blockIdx.x) % geometry.blocks),
        base_(static_cast<uint32_t>(__cvta_generic_to_shared(conv_shared)) + first),
        first_(first),
        row_0_(rank_ * geometry.block_rows),
        rows_(min(geometry.block_rows, layout.height - row_0_)),
        pixels_(layout.height * layout.width) {}

  __device__ __forceinline__ int rank() const { return rank_; }  // of the block in its cluster
  // Addresses in shared memory: the planes of the layer before, those that stand aside, their end.
  __device__ __forceinline__ uint32_t before() const { return SetOf(set_ ^ (geometry_.sets - 1)); }
  __device__ __forceinline__ uint32_t aside(int first) const {
    return SetOf(geometry_.sets) + first * geometry_.plane_bytes;
  }
  __device__ __forceinline__ uint32_t end() const { return aside(layout_.planes_aside); }

  static __device__ __forceinline__ int Group() {
    return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  }
  static __device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

  // Of [count, channels, height, width].
  template <class Number>
  __device__ __forceinline__ Number* Row(Number* rows, int64_t row) const {
    return rows + row * layout_.channels * pixels_;
  }

  // The borders of planes are never written after this.
  __device__ __forceinline__ void Clear() const {
    const uint32_t words = (end() - base_) / 16;
    for (uint32_t i = threadIdx.x; i < words; i += kConvThreads) {
      conv_shared[first_ / 16 + i] = make_uint4(0, 0, 0, 0);
    }
  }

  // Of two sets of planes: layers write to this one and read the other. There, rows that arrive
  // have a counter for each set and each side, in place of those of MakeArrivals.
  __device__ __forceinline__ void WriteTo(uint32_t set) { set_ = set; }
  __device__ __forceinline__ void CountArrivalsAt(uint32_t address) { arrivals_ = address; }
  __device__ __forceinline__ uint32_t ArrivalsOf(uint32_t set, ConvSide side) const {
    return arrivals_ + 8 * (2 * set + static_cast<uint32_t>(side));
  }
  // Does the block on that side have rows of the image, as this one does?
  __device__ __forceinline__ bool Has(ConvSide side) const {
    return side == ConvSide::kAbove ? rank_ > 0 && rows_ > 0
                                    : row_0_ + geometry_.block_rows < layout_.height;
  }
  // The first tile that reads rows of the block below.
  __device__ __forceinline__ int FirstTileAtEnd() const {
    return (geometry_.block_rows - 1) * geometry_.pitch / kTilePixels;
  }

  // No number written to planes since StartRow was beyond fp16 or not a number.
  __device__ __forceinline__ void StartRow() { extreme_ = __float2half2_rn(0.0f); }
  __device__ __forceinline__ bool Fits() const {
    return __low2float(extreme_) <= 65504.0f && __high2float(extreme_) <= 65504.0f;
  }

  // Calls act(sum, element, whether it lies in the image) for a tile.
  template <int kOutputs, class Act>
  __device__ __forceinline__ void ForElements(int tile, PixelSums<kOutputs>& sums,
                                              const Act& act) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const ConvPixel pixel = PixelOf(tile, h);
      const uint32_t first = (row_0_ + pixel.row) * layout_.width + pixel.column;
#pragma unroll
      for (int i = 0; i < kOutputs / 8; ++i) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int channel = 8 * i + 2 * (Lane() % 4) + k;
          const bool inside = pixel.valid && channel < layout_.channels;
          act(sums.v[i][2 * h + k], first + channel * pixels_, inside);
        }
      }
    }
  }

  template <int kOutputs>
  __device__ __forceinline__ void Read(const float* from, int tile, PixelSums<kOutputs>& to) const {
    ForElements(tile, to, [&](float& number, uint32_t element, bool inside) {
      number = inside ? from[element] : 0.0f;
    });
  }

  template <int kOutputs>
  __device__ __forceinline__ void Store(float* to, int tile, PixelSums<kOutputs>& from) const {
    ForElements(tile, from, [&](float& number, uint32_t element, bool inside) {
      if (inside) to[element] = number;
    });
  }

  // A tile of a vector in the order of lanes: a lane reads what it wrote.
  template <int kOutputs>
  static __device__ __forceinline__ void Load(const float4* vector, int tile,
                                              PixelSums<kOutputs>& to) {
    const float4* from = vector + tile * (kTileFloats / 4) + threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      const float4 four = from[i * 128];
      to.v[i][0] = four.x, to.v[i][1] = four.y, to.v[i][2] = four.z, to.v[i][3] = four.w;
    }
  }
  template <int kOutputs>
  static __device__ __forceinline__ void Save(float4* vector, int tile,
                                              const PixelSums<kOutputs>& from) {
    float4* to = vector + tile * (kTileFloats / 4) + threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      to[i * 128] = make_float4(from.v[i][0], from.v[i][1], from.v[i][2], from.v[i][3]);
    }
  }

  // Puts a tile into planes (a ConvAside) from the plane `first` of them on, and its outer rows
  // into the borders of the blocks beside this one.
  template <int kOutputs>
  __device__ __forceinline__ void Write(int where, int tile, const uint32_t (&packed)[kOutputs / 4],
                                        int first = 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const ConvPixel pixel = PixelOf(tile, h);
      if (pixel.valid) WritePixel<kOutputs>(where, first, pixel, h, packed);
    }
  }

  // For LoadPixels: of the pixels in `whole`, an image of `scale` times the height and width, that
  // the lane's pixel of a tile stands for, the first. Pixels outside of the image stand for any.
  __device__ __forceinline__ uint32_t FirstPixel(const ConvPlanes& whole, int scale,
                                                 int tile) const {
    const int pixel =
        tile * kTilePixels + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + Lane() % 16;
    int row = pixel * geometry_.pitch_inverse >> 16, column = pixel - row * geometry_.pitch;
    if (row >= rows_ || column >= layout_.width) row = column = 0;
    const int place = (scale * row + 1) * whole.geometry_.pitch + scale * column + 1;
    return whole.base_ + Lane() / 16 * whole.geometry_.plane_bytes + place * 16;
  }

  // Adds to an image of `scale` times the height and width, at the pixel `part` (scale row +
  // column) of each scale by scale.
  template <int kOutputs>
  __device__ __forceinline__ void AddToWhole(float* to, int scale, int part, int tile,
                                             const PixelSums<kOutputs>& sums) const {
    const uint32_t row_of_part = part >> (scale - 1), column_of_part = part & (scale - 1);
    const uint32_t pixels = scale * scale * pixels_;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const ConvPixel pixel = PixelOf(tile, h);
      if (!pixel.valid) continue;
      const uint32_t row = scale * (row_0_ + pixel.row) + row_of_part;
      const uint32_t first = scale * (row * layout_.width + pixel.column) + column_of_part;
#pragma unroll
      for (int i = 0; i < kOutputs / 8; ++i) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int channel = 8 * i + 2 * (Lane() % 4) + k;
          if (channel < layout_.channels) to[first + channel * pixels] += sums.v[i][2 * h + k];
        }
      }
    }
  }

  // All blocks of the image have read their planes, and this block's weights are there.
  __device__ __forceinline__ void AwaitReads() const {
    PublishToPixelSums();
    __syncthreads();
#if __CUDA_ARCH__ >= 900
    if (geometry_.blocks == 1) return;
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }

  // For the arrivals of rows from the blocks beside: once, before the first AwaitBlocks.
  __device__ __forceinline__ void MakeArrivals(uint32_t address) {
    arrivals_ = address;
    if (threadIdx.x != 0) return;
    for (int i = 0; i < kArrivals; ++i) ConvBarrier(arrivals_ + 8 * i).Make(1);
    ConvBarrier::PublishMade();
  }

  // All blocks of the image have come here, and what they did before is there.
  __device__ __forceinline__ void AwaitBlocks() const {
    PublishToPixelSums();
    __syncthreads();
#if __CUDA_ARCH__ >= 900
    if (geometry_.blocks == 1) return;
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }

  // What this block wrote to planes is there, and so are the rows beside it: `outputs` channels of
  // the layer before and the same of `aside`, if it is not kBefore.
  __device__ __forceinline__ void AwaitWrites(int outputs, int aside) {
    PublishToPixelSums();
    __syncthreads();
    if (geometry_.blocks == 1) return;
    AwaitArrivals(kBefore, outputs);
    if (aside != kBefore) AwaitArrivals(aside, outputs);
    PublishToPixelSums();
  }

  // The number of the lane's pixel in the image; -1: outside.
  __device__ __forceinline__ int PixelOfImage(int tile, int h) const {
    const ConvPixel pixel = PixelOf(tile, h);
    return pixel.valid ? (row_0_ + pixel.row) * layout_.width + pixel.column : -1;
  }

  // Of the lane's pixel; see ConvLayerLayout.
  __device__ __forceinline__ int BorderClass(int tile, int h) const {
    const ConvPixel pixel = PixelOf(tile, h);
    const auto class_of = [](int i, int count) { return i == 0 ? 0 : i + 1 == count ? 2 : 1; };
    return min(3 * class_of(row_0_ + pixel.row, layout_.height), 6) +
           class_of(pixel.column, layout_.width);
  }

 private:
  // h: the first or the second of the lane's pixels in a tile.
  __device__ __forceinline__ ConvPixel PixelOf(int tile, int h) const {
    const int pitch = geometry_.pitch;
    // Volatile: computed anew each time, since the pixels of four tiles do not fit in registers.
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    const int pixel = tile * kTilePixels + thread / 32 % 4 * 16 + thread % 32 / 4 + 8 * h;
    const int row = pixel * geometry_.pitch_inverse >> 16, column = pixel - row * pitch;
    return {.valid = row < rows_ && column < layout_.width,
            .row = row,
            .column = column,
            .place = pixel + pitch + 1};
  }

  template <int kOutputs>
  __device__ __forceinline__ void WritePixel(int where, int first, const ConvPixel& pixel, int h,
                                             const uint32_t (&packed)[kOutputs / 4]) {
    const uint32_t planes = where == kBefore ? SetOf(set_) : aside(layout_.aside_first[where]);
    const uint32_t to = planes + first * geometry_.plane_bytes + pixel.place * 16 + Lane() % 4 * 4;
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      const uint32_t pair = packed[2 * i + h];
      extreme_ = __hmax2_nan(extreme_, __habs2(*reinterpret_cast<const __half2*>(&pair)));
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + i * geometry_.plane_bytes), "r"(pair)
                   : "memory");
    }
    if (geometry_.blocks == 1) return;
    const int shift = geometry_.block_rows * geometry_.pitch * 16;
    if (pixel.row == 0 && rank_ > 0) {
      WriteBeside<kOutputs>(rank_ - 1, to + shift, CounterOf(where, ConvSide::kBelow), h, packed);
    }
    if (pixel.row + 1 == geometry_.block_rows && Has(ConvSide::kBelow)) {
      WriteBeside<kOutputs>(rank_ + 1, to - shift, CounterOf(where, ConvSide::kAbove), h, packed);
    }
  }

  __device__ __forceinline__ uint32_t SetOf(uint32_t set) const {
    return base_ + set * layout_.planes * geometry_.plane_bytes;
  }

  // Of the block to which rows go, on whose side `side` this block is.
  __device__ __forceinline__ uint32_t CounterOf(int where, ConvSide side) const {
    return geometry_.sets == 1 ? arrivals_ + 8 * where : ArrivalsOf(set_, side);
  }

  // Bytes arrive in the shared memory of another block and are counted there. `to` and
  // `own_counter`: addresses of this block, that mean the same in the other.
  template <int kOutputs>
  __device__ __forceinline__ void WriteBeside(int rank, uint32_t to, uint32_t own_counter, int h,
                                              const uint32_t (&packed)[kOutputs / 4]) const {
#if __CUDA_ARCH__ >= 900
    uint32_t there, counter;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to), "r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(counter)
                 : "r"(own_counter), "r"(rank));
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      asm volatile(
          "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
              there + i * geometry_.plane_bytes),
          "r"(packed[2 * i + h]), "r"(counter)
          : "memory");
    }
#endif
  }

  __device__ __forceinline__ void AwaitArrivals(int where, int outputs) {
    const ConvBarrier counter(arrivals_ + 8 * where);
    if (threadIdx.x == 0) {
      const uint32_t sides = Has(ConvSide::kAbove) + Has(ConvSide::kBelow);
      counter.Expect(sides * layout_.width * outputs * 2);
    }
    counter.AwaitOthers(phases_ >> where);
    phases_ ^= 1u << where;
  }

  const ConvLayout& layout_;
  const ConvGeometry& geometry_;
  const int rank_;
  const uint32_t base_, first_;
  const int row_0_, rows_;  // of the image, in this block
  const uint32_t pixels_;   // of the image
  uint32_t arrivals_ = 0;   // the counters
  uint32_t phases_ = 0;     // a bit of each
  uint32_t set_ = 0;        // of planes, that are written to
  __half2 extreme_;
};

// Warpgroups start their products one after the other, so that one activates sums while the next
// has the tensor cores. Every group takes every turn. Named barriers from 1 on, one for a group.
__device__ __forceinline__ void AwaitTurn() {
  asm volatile("bar.sync %0, 256;" ::"r"(1 + ConvPlanes::Group()) : "memory");
}
__device__ __forceinline__ void PassTurn() {
  asm volatile("bar.arrive %0, 256;" ::"r"(1 + (ConvPlanes::Group() + 1) % kConvGroups) : "memory");
}

}  // namespace hyperserve::kernels
