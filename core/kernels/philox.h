// Standard normals on the device: the twin of PhiloxNormals in core/io/philox.h, which defines the
// numbers. Both compute in double, so they differ by rounding only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace hyperserve::kernels {

// Fills `out`, device memory [rows, dimensions], row-major. Only starts the work, on `stream`; the
// caller's current device must be the one of stream and memory. Returns the status of the launch;
// cudaSuccess at once where there are no numbers to make. Allocates nothing and does not wait.
cudaError_t PhiloxNormals(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions,
                          float* out, cudaStream_t stream);
cudaError_t PhiloxNormals(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions,
                          double* out, cudaStream_t stream);

}  // namespace hyperserve::kernels
