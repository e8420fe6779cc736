#include "core/kernels/flow/flow_kernel.cuh"
#include "core/kernels/flow/flow_model.h"

namespace hyperserve::kernels {

template FlowKernelPointer FlowKernelFor<FlowActivation::kSoftplus>(int, int);

}  // namespace hyperserve::kernels
