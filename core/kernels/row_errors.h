// Error norms on the device, one block of threads a row, summed in an order that depends on the
// row's length alone: a row's norm never depends on the batch. The host's twin is RowErrorSquares
// (core/engine/readable/row_numbers.h), which sums in another order: equal to some units of
// rounding in double.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace hyperserve::kernels {

// out[row] = sum_i (e_i / (atol + rtol max(|z0_i|, |z1_i|)))^2, in double; not finite where a
// number of the row is not. All pointers are device memory; error, z0 and z1 are [rows, elements],
// row-major.
struct RowErrorOptions {
  int64_t rows = 0;
  int64_t elements = 0;
  const double* rtol = nullptr;  // [rows], likewise atol: each row has its own
  const double* atol = nullptr;
};
cudaError_t RowErrorSquares(const RowErrorOptions& options, const float* error, const float* z0,
                            const float* z1, double* out, cudaStream_t stream);
cudaError_t RowErrorSquares(const RowErrorOptions& options, const double* error, const double* z0,
                            const double* z1, double* out, cudaStream_t stream);

}  // namespace hyperserve::kernels
