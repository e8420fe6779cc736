// The coefficients of a table in the image, and products with them.
#pragma once

#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_net.cuh"

namespace hyperserve::kernels {

class FlowTableAccess {
 public:
  __device__ __forceinline__ explicit FlowTableAccess(const FlowLayout& layout)
      : layout_(layout), numbers_(Image<float>(layout.table)) {}

  // s_i.
  __device__ __forceinline__ float Node(int i) const { return numbers_[i]; }

  // y += c_i.
  template <int kHalves>
  __device__ __forceinline__ void AddOffset(int i, LaneVector<kHalves>& y) const {
    const float* offset = numbers_ + layout_.evaluations + i * layout_.dimensions;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int n = threadIdx.x % 4 + 4 * h;
      const float number = n < layout_.dimensions ? offset[n] : 0.0f;
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) y.v[m][h] += number;
    }
  }

  // y += a_i x (column -1) or B_ij x (column j). Dimensions that only padding has stay as they are:
  // there a tangent says one, so that the determinant is that of the others.
  template <int kHalves>
  __device__ __forceinline__ void AddProduct(int i, int column, const LaneVector<kHalves>& x,
                                             LaneVector<kHalves>& y) const {
    const int d = layout_.dimensions;
    const float* matrix =
        numbers_ + layout_.evaluations * (1 + d) + (i * (i + 3) / 2 + 1 + column) * d * d;
#pragma unroll
    for (int k = 0; k < 4 * kHalves; ++k) {
      float factors[kHalves];
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const int n = threadIdx.x % 4 + 4 * h;
        const float padding = column < 0 && n == k ? 1.0f : 0.0f;
        factors[h] = n < d && k < d ? matrix[n * d + k] : padding;
      }
#pragma unroll
      for (int m = 0; m < kLaneRows; ++m) {
        const float of_row = __shfl_sync(0xFFFFFFFFu, x.v[m][k / 4], k % 4, 4);
#pragma unroll
        for (int h = 0; h < kHalves; ++h) y.v[m][h] = fmaf(factors[h], of_row, y.v[m][h]);
      }
    }
  }

 private:
  const FlowLayout& layout_;
  const float* numbers_;
};

}  // namespace hyperserve::kernels
