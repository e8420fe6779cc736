// Linked into builds with CUDA.
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/engine/device.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/kernels/philox.h"
#include "core/kernels/row_errors.h"

namespace hyperserve {
namespace {

void CheckLaunch(cudaError_t error) {
  TORCH_CHECK(error == cudaSuccess, "CUDA: ", cudaGetErrorString(error));
}

cudaStream_t StreamOf(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

template <class Number>
void FillNormals(uint64_t seed, uint64_t first_row, at::Tensor& rows) {
  CheckLaunch(kernels::PhiloxNormals(seed, first_row, rows.size(0), rows.size(1),
                                     rows.data_ptr<Number>(), StreamOf(rows)));
}

template <class Number>
void SumSquares(const kernels::RowErrorOptions& options, const at::Tensor& error,
                const at::Tensor& z0, const at::Tensor& z1, at::Tensor& out) {
  CheckLaunch(kernels::RowErrorSquares(options, error.const_data_ptr<Number>(),
                                       z0.const_data_ptr<Number>(), z1.const_data_ptr<Number>(),
                                       out.data_ptr<double>(), StreamOf(error)));
}

}  // namespace

std::vector<DeviceInfo> CudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};  // no driver: no devices
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties = {};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    devices.push_back({.name = absl::StrCat("cuda:", i),
                       .description = properties.name,
                       .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return devices;
}

void CudaNormals(uint64_t seed, uint64_t first_row, at::Tensor& rows) {
  const c10::DeviceGuard guard(rows.device());
  rows.scalar_type() == at::kDouble ? FillNormals<double>(seed, first_row, rows)
                                    : FillNormals<float>(seed, first_row, rows);
}

at::Tensor CudaErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                            const std::vector<double>& rtol, const std::vector<double>& atol) {
  const c10::DeviceGuard guard(error.device());
  const at::Tensor e = error.contiguous(), a = z0.contiguous(), b = z1.contiguous();
  at::Tensor out = at::empty({e.size(0)}, e.options().dtype(at::kDouble));
  at::Tensor tolerances = at::empty({2, e.size(0)}, at::kDouble);
  std::copy(rtol.begin(), rtol.end(), tolerances[0].data_ptr<double>());
  std::copy(atol.begin(), atol.end(), tolerances[1].data_ptr<double>());
  tolerances = tolerances.to(e.device());
  const kernels::RowErrorOptions options{.rows = e.size(0),
                                         .elements = e.numel() / e.size(0),
                                         .rtol = tolerances[0].const_data_ptr<double>(),
                                         .atol = tolerances[1].const_data_ptr<double>()};
  e.scalar_type() == at::kDouble ? SumSquares<double>(options, e, a, b, out)
                                 : SumSquares<float>(options, e, a, b, out);
  return out;
}

}  // namespace hyperserve
