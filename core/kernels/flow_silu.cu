#include "core/kernels/flow_kernel.cuh"
#include "core/kernels/flow_model.h"

namespace hyperserve::kernels {

template FlowKernelPointer FlowKernelFor<FlowActivation::kSilu>(int, int);

}  // namespace hyperserve::kernels
