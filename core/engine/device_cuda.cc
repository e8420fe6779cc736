// Linked into builds with CUDA.
#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/engine/device.h"
#include "core/engine/device_memory.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/fused/fused_flow.h"
#include "core/kernels/flow/flow.h"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"
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

class PackedFlow final : public FusedFlow {
 public:
  PackedFlow(const kernels::FlowModel& model, kernels::FlowPrecision precision, at::Device device) {
    const c10::DeviceGuard guard(device);
    const kernels::FlowImage image = kernels::PackFlow(model, precision);
    at::Tensor host = at::empty({static_cast<int64_t>(image.bytes.size())}, at::kByte);
    std::memcpy(host.data_ptr(), image.bytes.data(), image.bytes.size());
    image_ = host.to(device);
    CheckLaunch(kernels::PrepareFlow(image.layout, image_.const_data_ptr(), &program_));
  }

  bool Takes(const kernels::FlowTask& task) const override {
    return std::visit([&](const auto& plan) { return kernels::FlowFits(program_, plan); }, task);
  }

  // A row of error control takes about 28 evaluations at 1e-5 (bench/results), and more by the
  // fifth root of the tolerance.
  int64_t RowsAtOnce(const kernels::FlowAdaptivePlan& plan) const override {
    const double tolerance = std::max(std::max(plan.rtol, plan.atol), 1e-9);
    const double evaluations = 28.0 * std::max(std::pow(1e-5 / tolerance, 0.2), 0.5);
    const double turns = 0.7 * kernels::kFlowRoundsMax / evaluations;
    return static_cast<int64_t>(turns * kernels::FlowRowsUnderWay(program_, plan));
  }

  void Solve(const kernels::FlowTask& task, const kernels::FlowRows& rows) const override {
    const c10::DeviceGuard guard(image_.device());
    std::visit(
        [&](const auto& plan) {
          CheckLaunch(kernels::SolveFlow(program_, plan, rows, StreamOf(image_)));
        },
        task);
  }

 private:
  at::Tensor image_;
  kernels::FlowProgram program_;
};

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

int64_t CudaMemoryInUse(int index) {
  const c10::DeviceGuard guard(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index)));
  size_t free = 0, all = 0;
  return cudaMemGetInfo(&free, &all) == cudaSuccess ? static_cast<int64_t>(all - free) : 0;
}

void CudaBoundMemory(int index, double bytes) {
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  at::globalContext().lazyInitDevice(at::kCUDA);  // its allocator
  const c10::DeviceGuard guard(device);
  size_t free = 0, all = 0;
  if (cudaMemGetInfo(&free, &all) != cudaSuccess) return;
  const double share = std::clamp(bytes / static_cast<double>(all), 0.0, 1.0);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(share, device.index());
}

void CudaGiveBackMemory() { c10::cuda::CUDACachingAllocator::emptyCache(); }

DeviceState StateOfDevice() {
  // The last error goes away when it is read, unless it is one that stays.
  const cudaError_t last = cudaGetLastError();
  const cudaError_t now = cudaDeviceSynchronize();
  if (now == cudaErrorMemoryAllocation || last == cudaErrorMemoryAllocation) {
    return DeviceState::kFull;
  }
  return now == cudaSuccess ? DeviceState::kGood : DeviceState::kLost;
}

void CudaNormals(uint64_t seed, uint64_t first_row, at::Tensor& rows) {
  const c10::DeviceGuard guard(rows.device());
  rows.scalar_type() == at::kDouble ? FillNormals<double>(seed, first_row, rows)
                                    : FillNormals<float>(seed, first_row, rows);
}

at::Tensor CudaErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                            const at::Tensor& tolerances) {
  const c10::DeviceGuard guard(error.device());
  const at::Tensor e = error.contiguous(), a = z0.contiguous(), b = z1.contiguous();
  at::Tensor out = at::empty({e.size(0)}, e.options().dtype(at::kDouble));
  const kernels::RowErrorOptions options{.rows = e.size(0),
                                         .elements = e.numel() / e.size(0),
                                         .rtol = tolerances[0].const_data_ptr<double>(),
                                         .atol = tolerances[1].const_data_ptr<double>()};
  e.scalar_type() == at::kDouble ? SumSquares<double>(options, e, a, b, out)
                                 : SumSquares<float>(options, e, a, b, out);
  return out;
}

std::shared_ptr<const FusedFlow> CudaFlow(const kernels::FlowModel& model,
                                          kernels::FlowPrecision precision, at::Device device) {
  return std::make_shared<PackedFlow>(model, precision, device);
}

}  // namespace hyperserve
