// Linked into builds without CUDA.
#include "core/engine/captured/captured_work.h"
#include "core/engine/device.h"
#include "core/engine/device_memory.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/fused/fused_conv.h"
#include "core/engine/fused/fused_flow.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/flow/flow_model.h"

namespace hyperserve {

std::vector<DeviceInfo> CudaDevices() { return {}; }

int64_t CudaMemoryInUse(int) { return 0; }

void CudaBoundMemory(int, double) {}

void CudaGiveBackMemory() {}

DeviceState StateOfDevice() { return DeviceState::kGood; }

void CudaNormals(uint64_t, uint64_t, at::Tensor&) { TORCH_CHECK(false, "built without CUDA"); }

at::Tensor CudaErrorSquares(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const at::Tensor&) {
  TORCH_CHECK(false, "built without CUDA");
}

std::shared_ptr<const FusedFlow> CudaFlow(const kernels::FlowModel&, kernels::FlowPrecision,
                                          at::Device) {
  TORCH_CHECK(false, "built without CUDA");
}

std::shared_ptr<const FusedConv> CudaConv(const kernels::ConvModel&, at::Device) {
  TORCH_CHECK(false, "built without CUDA");
}

std::unique_ptr<CaptureLane> CudaCaptureLane(const c10::Stream&) {
  TORCH_CHECK(false, "built without CUDA");
}

}  // namespace hyperserve
