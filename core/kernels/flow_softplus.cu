#include "core/kernels/flow_kernel.cuh"

namespace hyperserve::kernels {

template FlowKernelPointer FlowKernelFor<FlowActivation::kSoftplus>(int, int);

}  // namespace hyperserve::kernels
