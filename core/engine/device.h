// Devices by name, and the two kernels that the readable engine uses on CUDA. Which of
// device_cpu.cc and device_cuda.cc is linked decides whether there is a CUDA device at all.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/devices.h"

namespace hyperserve {

// "cpu", "cuda" (the first), "cuda:N". kInvalidArgument names the devices that are there.
absl::StatusOr<at::Device> FindDevice(std::string_view name);

// In the file that is linked. Without CUDA: no devices, and the others must not be called.
std::vector<DeviceInfo> CudaDevices();
// PhiloxNormals into `rows`, a contiguous CUDA tensor [rows, dimensions], F32 or F64.
void CudaNormals(uint64_t seed, uint64_t first_row, at::Tensor& rows);
// RowErrorSquares of core/engine/readable/row_numbers.h: F64 [B] on the device.
at::Tensor CudaErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                            const std::vector<double>& rtol, const std::vector<double>& atol);

}  // namespace hyperserve
