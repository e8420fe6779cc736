// Linked into builds without CUDA.
#include "core/engine/device.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"

namespace hyperserve {

std::vector<DeviceInfo> CudaDevices() { return {}; }

void CudaNormals(uint64_t, uint64_t, at::Tensor&) { TORCH_CHECK(false, "built without CUDA"); }

at::Tensor CudaErrorSquares(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const std::vector<double>&, const std::vector<double>&) {
  TORCH_CHECK(false, "built without CUDA");
}

}  // namespace hyperserve
