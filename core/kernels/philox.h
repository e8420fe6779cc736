// Standard normals on the device: the twin of PhiloxNormals (core/io/philox.h), which says what the
// numbers are. Computed in double, so that they differ from the host's by rounding alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace hyperserve::kernels {

// out: device memory, [rows, dimensions], row-major. Returns what the launch returned; runs on
// `stream`.
cudaError_t PhiloxNormals(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions,
                          float* out, cudaStream_t stream);
cudaError_t PhiloxNormals(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions,
                          double* out, cudaStream_t stream);

}  // namespace hyperserve::kernels
