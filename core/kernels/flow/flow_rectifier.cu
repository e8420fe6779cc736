#include "core/kernels/flow/flow_kernel.cuh"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_solve.cuh"

namespace hyperserve::kernels {

template FlowKernelPointer FlowKernelFor<FlowActivation::kRectifier>(FlowSolveKind, int, int);

}  // namespace hyperserve::kernels
