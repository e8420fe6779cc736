#include "core/kernels/row_errors.h"

namespace hyperserve::kernels {
namespace {

constexpr int kThreads = 256;  // a power of two: the sum is a tree

template <class Number>
__global__ void SumSquares(RowErrorOptions options, const Number* error, const Number* z0,
                           const Number* z1, double* out) {
  __shared__ double sums[kThreads];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * options.elements;
  const double rtol = options.rtol[blockIdx.x], atol = options.atol[blockIdx.x];
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < options.elements; i += kThreads) {
    const double from = fabs(static_cast<double>(z0[begin + i]));
    const double to = fabs(static_cast<double>(z1[begin + i]));
    const double e = static_cast<double>(error[begin + i]);
    const double scaled = e / (atol + rtol * fmax(from, to));
    // An infinite state would make any error look small.
    sum += isfinite(from) && isfinite(to) && isfinite(e) ? scaled * scaled : nan("");
  }
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

template <class Number>
cudaError_t Launch(const RowErrorOptions& options, const Number* error, const Number* z0,
                   const Number* z1, double* out, cudaStream_t stream) {
  if (options.rows == 0) return cudaSuccess;
  SumSquares<<<static_cast<unsigned>(options.rows), kThreads, 0, stream>>>(options, error, z0, z1,
                                                                           out);
  return cudaGetLastError();
}

}  // namespace

cudaError_t RowErrorSquares(const RowErrorOptions& options, const float* error, const float* z0,
                            const float* z1, double* out, cudaStream_t stream) {
  return Launch(options, error, z0, z1, out, stream);
}

cudaError_t RowErrorSquares(const RowErrorOptions& options, const double* error, const double* z0,
                            const double* z1, double* out, cudaStream_t stream) {
  return Launch(options, error, z0, z1, out, stream);
}

}  // namespace hyperserve::kernels
