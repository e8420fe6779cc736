// Linked into builds with CUDA: fields of convolutions on a device.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>
#include <memory>

#include "core/engine/device.h"
#include "core/engine/fused/fused_conv.h"
#include "core/kernels/conv/conv.h"
#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_rows.h"

namespace hyperserve {
namespace {

void Check(cudaError_t error) {
  TORCH_CHECK(error == cudaSuccess, "CUDA: ", cudaGetErrorString(error));
}

class PackedConv final : public FusedConv {
 public:
  PackedConv(const kernels::ConvModel& model, at::Device device) {
    const c10::DeviceGuard guard(device);
    const kernels::ConvImage image = kernels::PackConv(model);
    at::Tensor host = at::empty({static_cast<int64_t>(image.bytes.size())}, at::kByte);
    std::memcpy(host.data_ptr(), image.bytes.data(), image.bytes.size());
    image_ = host.to(device);
    Check(kernels::PrepareConv(image.layout, image_.const_data_ptr(), &program_));
  }

  bool Fits() const override { return kernels::ConvFits(program_); }

  int64_t RowsAtOnce() const override { return program_.multiprocessors; }

  int64_t ScratchBytes(const kernels::ConvTask& task) const override {
    return static_cast<int64_t>(kernels::ConvScratchBytes(program_, task));
  }

  void Solve(const kernels::ConvTask& task, const kernels::ConvRows& rows) const override {
    const c10::DeviceGuard guard(image_.device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(image_.device().index()).stream();
    Check(kernels::SolveConv(program_, task, rows, stream));
  }

 private:
  at::Tensor image_;
  kernels::ConvProgram program_;
};

}  // namespace

std::shared_ptr<const FusedConv> CudaConv(const kernels::ConvModel& model, at::Device device) {
  return std::make_shared<PackedConv>(model, device);
}

}  // namespace hyperserve
