// Error norms on the device: one block of threads for each row. The order of summation depends on
// the row's length only, so a row's norm never depends on the batch. The twin on the host is
// RowErrorSquares in core/engine/readable/row_numbers.h. It sums in another order, so the two agree
// to a few units of rounding in double.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace hyperserve::kernels {

struct RowErrorOptions {
  int64_t rows = 0;
  int64_t elements = 0;          // of one row
  const double* rtol = nullptr;  // [rows]: each row has its own tolerances
  const double* atol = nullptr;  // [rows]
};
// out[row] = sum_i (e_i / (atol + rtol max(|z0_i|, |z1_i|)))^2, in double; NaN where a number of
// the row is not finite. All pointers are device memory; error, z0 and z1 are [rows, elements],
// row-major, out is [rows]. Only starts the work, on `stream`; the memory must stay valid until the
// work is done. Returns the status of the launch; cudaSuccess at once for no rows.
cudaError_t RowErrorSquares(const RowErrorOptions& options, const float* error, const float* z0,
                            const float* z1, double* out, cudaStream_t stream);
cudaError_t RowErrorSquares(const RowErrorOptions& options, const double* error, const double* z0,
                            const double* z1, double* out, cudaStream_t stream);

}  // namespace hyperserve::kernels
