#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/kernels/adaptive/adaptive_kernel.cuh"
#include "core/kernels/flow/flow.h"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/flow_rows.h"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {
namespace {

FlowAdaptivePointer KernelOf(const FlowLayout& layout) {
  switch (layout.activation) {
    case FlowActivation::kSoftplus:
      return FlowAdaptiveKernelFor<FlowActivation::kSoftplus>(layout.width, layout.outputs);
    case FlowActivation::kTanh:
      return FlowAdaptiveKernelFor<FlowActivation::kTanh>(layout.width, layout.outputs);
    case FlowActivation::kSilu:
      return FlowAdaptiveKernelFor<FlowActivation::kSilu>(layout.width, layout.outputs);
    case FlowActivation::kRectifier:
      return FlowAdaptiveKernelFor<FlowActivation::kRectifier>(layout.width, layout.outputs);
  }
  return nullptr;
}

// Bytes of the vectors of one warp.
size_t VectorBytes(const FlowLayout& layout, const FlowAdaptivePlan& plan) {
  const int halves = (layout.outputs + 3) / 4;
  return static_cast<size_t>((kAdaptiveSlope1 + plan.tableau.stages()) * halves) * kLaneRows * 32 *
         sizeof(float);
}

size_t FixedBytes(const FlowLayout& layout) {
  return layout.bytes + kAdaptiveWeightFloats * sizeof(float);
}

// As in flow.cu.
int WarpsOf(const FlowProgram& program, const FlowAdaptivePlan& plan) {
  const size_t fixed = FixedBytes(program.layout);
  if (fixed > static_cast<size_t>(program.shared_bytes_max)) return 0;
  const size_t room = static_cast<size_t>(program.shared_bytes_max) - fixed;
  return static_cast<int>(
             std::min<size_t>(kAdaptiveWarps, room / VectorBytes(program.layout, plan))) /
         4 * 4;
}

FlowAdaptiveSteps StepsOf(const FlowAdaptivePlan& plan) {
  const Tableau& tableau = plan.tableau;
  FlowAdaptiveSteps steps = {};
  steps.stages = tableau.stages();
  steps.embedded_order = tableau.embedded_order;
  steps.attempts_max = static_cast<int>(std::min<int64_t>(plan.attempts_max, kFlowRoundsMax));
  steps.rounds_max = kFlowRoundsMax;
  const auto last = static_cast<size_t>(steps.stages - 1);
  for (size_t i = 0; i <= last; ++i) {
    const StageWeights& weights = i == last ? tableau.error : tableau.a[i + 1];
    for (size_t j = 0; j <= i; ++j) steps.weights[i][j] = static_cast<float>(weights[j]);
    steps.c[i] = static_cast<float>(tableau.c[i]);
  }
  steps.rtol = static_cast<float>(plan.rtol);
  steps.atol = static_cast<float>(plan.atol);
  steps.s0 = static_cast<float>(plan.s0);
  steps.s1 = static_cast<float>(plan.s1);
  steps.field_s0 = static_cast<float>(plan.against ? plan.s1 : plan.s0);
  steps.sign = plan.against ? -1.0f : 1.0f;
  return steps;
}

}  // namespace

cudaError_t PrepareAdaptiveFlow(const FlowProgram& program) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(KernelOf(program.layout)),
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              program.shared_bytes_max);
}

bool FlowFits(const FlowProgram& program, const FlowAdaptivePlan& plan) {
  return WarpsOf(program, plan) > 0;
}

int64_t FlowRowsUnderWay(const FlowProgram& program, const FlowAdaptivePlan& plan) {
  return static_cast<int64_t>(program.multiprocessors) * WarpsOf(program, plan) * kWarpRows;
}

cudaError_t SolveFlow(const FlowProgram& program, const FlowAdaptivePlan& plan,
                      const FlowRows& rows, cudaStream_t stream) {
  if (rows.count == 0) return cudaSuccess;
  const int warps = WarpsOf(program, plan);
  if (warps == 0) return cudaErrorInvalidValue;
  const FlowAdaptiveLaunch launch{.layout = program.layout,
                                  .image = static_cast<const uint4*>(program.image),
                                  .plan = StepsOf(plan),
                                  .rows = rows};
  constexpr int64_t kGroupRows = 4 * kWarpRows;
  const int64_t groups = (rows.count + kGroupRows - 1) / kGroupRows;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(groups, program.multiprocessors));
  const size_t shared =
      FixedBytes(program.layout) + static_cast<size_t>(warps) * VectorBytes(program.layout, plan);
  KernelOf(program.layout)<<<grid, static_cast<unsigned>(warps) * 32, shared, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace hyperserve::kernels
