#include "core/kernels/adaptive/adaptive_kernel.cuh"
#include "core/kernels/flow/flow_model.h"

namespace hyperserve::kernels {

template FlowAdaptivePointer FlowAdaptiveKernelFor<FlowActivation::kSoftplus>(int, int);

}  // namespace hyperserve::kernels
