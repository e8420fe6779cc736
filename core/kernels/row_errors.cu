#include "core/kernels/row_errors.h"

namespace hyperserve::kernels {
namespace {

constexpr int64_t kThreadsLeast = 32, kThreadsMost = 1024, kElementsOfThread = 8;

// A power of two, since the sum is a tree.
int64_t ThreadsFor(int64_t elements) {
  int64_t threads = kThreadsLeast;
  while (threads < kThreadsMost && threads * kElementsOfThread < elements) threads *= 2;
  return threads;
}

template <class Number>
__global__ void SumSquares(RowErrorOptions options, const Number* error, const Number* z0,
                           const Number* z1, double* out) {
  extern __shared__ double sums[];  // of the block's threads
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * options.elements;
  const double rtol = options.rtol[blockIdx.x], atol = options.atol[blockIdx.x];
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < options.elements; i += blockDim.x) {
    const Number from = fabs(z0[begin + i]), to = fabs(z1[begin + i]), e = error[begin + i];
    const double scaled =
        static_cast<double>(e) / (atol + rtol * static_cast<double>(fmax(from, to)));
    // An infinite state would make any error look small.
    sum += isfinite(from) && isfinite(to) && isfinite(e) ? scaled * scaled : nan("");
  }
  sums[threadIdx.x] = sum;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

template <class Number>
cudaError_t Launch(const RowErrorOptions& options, const Number* error, const Number* z0,
                   const Number* z1, double* out, cudaStream_t stream) {
  if (options.rows == 0) return cudaSuccess;
  const auto threads = static_cast<unsigned>(ThreadsFor(options.elements));
  SumSquares<<<static_cast<unsigned>(options.rows), threads, threads * sizeof(double), stream>>>(
      options, error, z0, z1, out);
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
