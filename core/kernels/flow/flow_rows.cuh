// The rows that a warp solves: where they come from and go to.
#pragma once

#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/flow_rows.h"
#include "core/kernels/philox.cuh"

namespace hyperserve::kernels {

template <int kHalves>
class RowAccess {
 public:
  using Vector = LaneVector<kHalves>;

  __device__ __forceinline__ RowAccess(const FlowRows& rows, int dimensions)
      : rows_(rows), dimensions_(dimensions) {}

  // The 16 rows from `first` on. Rows beyond the last are zeros.
  __device__ __forceinline__ Vector Read(int64_t first) const {
    const float* from = rows_.z0 + first * dimensions_;
    Vector z;
#pragma unroll
    for (int i = 0; i < kLaneRows * kHalves; ++i) {
      const int row = Lane() / 4 + i / kHalves * 8, n = Lane() % 4 + i % kHalves * 4;
      if (row < rows_.count - first && n < dimensions_) {
        z.v[i / kHalves][i % kHalves] = from[row * dimensions_ + n];
      }
    }
    return z;
  }

  __device__ __forceinline__ void Write(int64_t first, const Vector& z, uint32_t unfit) const {
    unfit |= __shfl_xor_sync(0xFFFFFFFFu, unfit, 1);
    unfit |= __shfl_xor_sync(0xFFFFFFFFu, unfit, 2);
    float* to = rows_.z1 + first * dimensions_;
#pragma unroll
    for (int i = 0; i < kLaneRows * kHalves; ++i) {
      const int row = Lane() / 4 + i / kHalves * 8, n = Lane() % 4 + i % kHalves * 4;
      if (row >= rows_.count - first) continue;
      if (n < dimensions_) to[row * dimensions_ + n] = z.v[i / kHalves][i % kHalves];
      if (n == 0 && rows_.unfit != nullptr) rows_.unfit[first + row] = unfit >> i / kHalves & 1u;
    }
  }

  // Each lane holds its part of a row's sum.
  __device__ __forceinline__ void WriteLogDensity(int64_t first,
                                                  const float (&parts)[kLaneRows]) const {
#pragma unroll
    for (int m = 0; m < kLaneRows; ++m) {
      float sum = parts[m] + __shfl_xor_sync(0xFFFFFFFFu, parts[m], 1);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      const int row = Lane() / 4 + m * 8;
      if (Lane() % 4 == 0 && row < rows_.count - first) rows_.log_density[first + row] = sum;
    }
  }

  // The noise of the 16 rows from `first` on, and of those from `second` on: each lane makes the
  // normals of one row, and the keepers fetch them.
  __device__ __forceinline__ void Noise(int64_t first, int64_t second, Vector& z,
                                        Vector& next) const {
    const int lane = Lane(), q = lane % 4;
    const uint64_t row =
        rows_.first_row + static_cast<uint64_t>(lane < 16 ? first + lane : second + lane - 16);
#pragma unroll 1
    for (int pair = 0; 2 * pair < dimensions_; ++pair) {
      const uint4 words = PhiloxWords(row, static_cast<uint32_t>(pair / 2), PhiloxKey(rows_.seed));
      const float2 normals =
          FloatNormalPair(pair % 2 == 0 ? words.x : words.z, pair % 2 == 0 ? words.y : words.w);
#pragma unroll
      for (int m = 0; m < 2 * kLaneRows; ++m) {
        const int from = lane / 4 + 8 * m;
        const float even = __shfl_sync(0xFFFFFFFFu, normals.x, from);
        const float odd = __shfl_sync(0xFFFFFFFFu, normals.y, from);
        // Of the last pair, the odd normal may belong to no dimension.
        if (q / 2 != pair % 2 || 2 * pair + q % 2 >= dimensions_) continue;
        float(&mine)[kHalves] = m < kLaneRows ? z.v[m] : next.v[m - kLaneRows];
        mine[kHalves == 1 || pair < 2 ? 0 : kHalves - 1] = q % 2 == 0 ? even : odd;
      }
    }
  }

 private:
  static __device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

  const FlowRows& rows_;
  const int dimensions_;
};

}  // namespace hyperserve::kernels
