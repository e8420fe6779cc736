// Devices by name, and the kernels that the engines call on CUDA. Private to core/engine. CMake
// links device_cpu.cc or device_cuda.cc, and so decides whether CUDA devices exist.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/captured/captured_work.h"
#include "core/engine/devices.h"
#include "core/engine/fused/fused_conv.h"
#include "core/engine/fused/fused_flow.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/flow/flow_model.h"

namespace hyperserve {

// "cpu", "cuda" (the first), "cuda:N". kInvalidArgument for an unknown name lists the known ones.
absl::StatusOr<at::Device> FindDevice(std::string_view name);

// Defined in the file that is linked. Without CUDA the list is empty, StateOfDevice says kGood, and
// the other functions throw c10::Error. With CUDA they work on the current stream of the tensors'
// device, and throw c10::Error where a launch fails. Unless said otherwise they only start their
// work.
std::vector<DeviceInfo> CudaDevices();
// Fills `rows`, a contiguous CUDA tensor [rows, dimensions] of F32 or F64, by PhiloxNormals.
void CudaNormals(uint64_t seed, uint64_t first_row, at::Tensor& rows);
// RowErrorSquares of core/engine/readable/row_numbers.h; F64 [B] on the device, where `tolerances`
// is, F64 [2, B]. Precondition: B >= 1.
at::Tensor CudaErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                            const at::Tensor& tolerances);
// What the device says after a failure. Waits for it. kFull: the last call failed for want of
// memory, and the next may not. kLost: every further call of this process fails.
enum class DeviceState { kGood, kFull, kLost };
// Of the current device of this thread. Takes its last error away, unless that stays for good; so
// the first caller after a failure learns of a full memory, and a second one may not.
DeviceState StateOfDevice();
// A flow with its weights packed on `device`. Waits for the copy. Precondition:
// kernels::FlowMisfit(model).empty().
std::shared_ptr<const FusedFlow> CudaFlow(const kernels::FlowModel& model,
                                          kernels::FlowPrecision precision, at::Device device);
// A field of convolutions likewise. Precondition: kernels::ConvMisfit(model).empty().
std::shared_ptr<const FusedConv> CudaConv(const kernels::ConvModel& model, at::Device device);
// Where work of the stream's device is captured: on that stream, on which nothing else may run.
std::unique_ptr<CaptureLane> CudaCaptureLane(const c10::Stream& stream);

}  // namespace hyperserve
