#include <algorithm>
#include <cmath>

#include "core/kernels/flow/flow.h"
#include "core/kernels/flow/flow_kernel.cuh"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/flow_solve.cuh"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {
namespace {

FlowKernelPointer KernelOf(const FlowLayout& layout) {
  switch (layout.activation) {
    case FlowActivation::kSoftplus:
      return FlowKernelFor<FlowActivation::kSoftplus>(layout.width, layout.outputs);
    case FlowActivation::kTanh:
      return FlowKernelFor<FlowActivation::kTanh>(layout.width, layout.outputs);
    case FlowActivation::kSilu:
      return FlowKernelFor<FlowActivation::kSilu>(layout.width, layout.outputs);
    case FlowActivation::kRectifier:
      return FlowKernelFor<FlowActivation::kRectifier>(layout.width, layout.outputs);
  }
  return nullptr;
}

// Bytes of the vectors of one warp.
size_t VectorBytes(const FlowLayout& layout, int stages) {
  return static_cast<size_t>(kSlotSlope1 + stages) * static_cast<size_t>((layout.outputs + 3) / 4) *
         kLaneRows * 32 * sizeof(float);
}

// Warps of a block: whole warpgroups, fewer where long tableaux on deep nets leave no room for the
// vectors of all; 0: the image does not fit.
int WarpsOf(const FlowProgram& program, int stages) {
  if (program.layout.bytes > static_cast<uint32_t>(program.shared_bytes_max)) return 0;
  const size_t room = static_cast<size_t>(program.shared_bytes_max) - program.layout.bytes;
  const size_t warps = room / VectorBytes(program.layout, stages);
  return static_cast<int>(std::min<size_t>(kFlowWarps, warps)) / 4 * 4;
}

FlowSteps StepsOf(const FlowPlan& plan) {
  FlowSteps steps = {};
  const double eps = (plan.s1 - plan.s0) / plan.steps;
  steps.steps = plan.steps;
  steps.stages = plan.tableau.solution_stages();
  steps.hypersolved = plan.hypersolved;
  for (size_t i = 0; i < kStagesMax; ++i) {
    for (size_t j = 0; j < i; ++j) steps.a[i][j] = static_cast<float>(eps * plan.tableau.a[i][j]);
    steps.b[i] = static_cast<float>(eps * plan.tableau.b[i]);
    steps.c[i] = static_cast<float>(eps * plan.tableau.c[i]);
  }
  steps.g = static_cast<float>(std::pow(eps, plan.tableau.order + 1));
  steps.eps = static_cast<float>(eps);
  steps.s0 = static_cast<float>(plan.s0);
  steps.field_s0 = static_cast<float>(plan.against ? plan.s1 : plan.s0);
  steps.sign = plan.against ? -1.0f : 1.0f;
  return steps;
}

}  // namespace

cudaError_t PrepareFlow(const FlowLayout& layout, const void* image, FlowProgram* program) {
  int device = 0;
  FlowProgram made{.layout = layout, .image = image};
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&made.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&made.shared_bytes_max, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                   device);
  }
  if (error == cudaSuccess) {
    error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(KernelOf(layout)),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, made.shared_bytes_max);
  }
  if (error == cudaSuccess) *program = made;
  return error;
}

bool FlowFits(const FlowProgram& program, int stages) { return WarpsOf(program, stages) > 0; }

cudaError_t SolveFlow(const FlowProgram& program, const FlowPlan& plan, const FlowRows& rows,
                      cudaStream_t stream) {
  if (rows.count == 0) return cudaSuccess;
  FlowLaunch launch{.layout = program.layout,
                    .image = static_cast<const uint4*>(program.image),
                    .steps = StepsOf(plan),
                    .rows = rows};
  const int warps = WarpsOf(program, launch.steps.stages);
  if (warps == 0) return cudaErrorInvalidValue;
  const int64_t groups = (rows.count + kGroupRows - 1) / kGroupRows;
  const unsigned grid = static_cast<unsigned>(std::min<int64_t>(groups, program.multiprocessors));
  const size_t shared = program.layout.bytes + static_cast<size_t>(warps) *
                                                   VectorBytes(program.layout, launch.steps.stages);
  KernelOf(program.layout)<<<grid, static_cast<unsigned>(warps) * 32, shared, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace hyperserve::kernels
