// Devices by name, and the two kernels that the readable engine calls on CUDA. Private to
// core/engine. CMake links device_cpu.cc or device_cuda.cc, and so decides whether CUDA devices
// exist.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/devices.h"

namespace hyperserve {

// "cpu", "cuda" (the first), "cuda:N". kInvalidArgument for an unknown name lists the known ones.
absl::StatusOr<at::Device> FindDevice(std::string_view name);

// Defined in the file that is linked. Without CUDA the list is empty and the two functions throw.
// They work on the current stream of the tensors' device, do not wait for it, and throw c10::Error
// where a launch fails.
std::vector<DeviceInfo> CudaDevices();
// Fills `rows`, a contiguous CUDA tensor [rows, dimensions] of F32 or F64, by PhiloxNormals.
void CudaNormals(uint64_t seed, uint64_t first_row, at::Tensor& rows);
// RowErrorSquares of core/engine/readable/row_numbers.h; F64 [B] on the device.
at::Tensor CudaErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                            const std::vector<double>& rtol, const std::vector<double>& atol);

}  // namespace hyperserve
