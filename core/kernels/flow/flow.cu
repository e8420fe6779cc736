#include <algorithm>
#include <cmath>

#include "core/kernels/flow/flow.h"
#include "core/kernels/flow/flow_kernel.cuh"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/flow_solve.cuh"
#include "core/kernels/flow/flow_team.cuh"
#include "core/kernels/graph_launch.h"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {
namespace {

FlowSolveKind KindOf(const FlowPlan& plan) {
  return plan.density == FlowDensity::kNone ? FlowSolveKind::kValues : FlowSolveKind::kTangents;
}

// Null: the model has too many dimensions for tangents.
FlowKernelPointer KernelOf(FlowSolveKind kind, const FlowLayout& layout) {
  switch (layout.activation) {
    case FlowActivation::kSoftplus:
      return FlowKernelFor<FlowActivation::kSoftplus>(kind, layout.width, layout.outputs);
    case FlowActivation::kTanh:
      return FlowKernelFor<FlowActivation::kTanh>(kind, layout.width, layout.outputs);
    case FlowActivation::kSilu:
      return FlowKernelFor<FlowActivation::kSilu>(kind, layout.width, layout.outputs);
    case FlowActivation::kRectifier:
      return FlowKernelFor<FlowActivation::kRectifier>(kind, layout.width, layout.outputs);
  }
  return nullptr;
}

int StagesOf(const FlowLayout& layout, const FlowPlan& plan) {
  return layout.evaluations >= 0 ? layout.evaluations : plan.tableau.solution_stages();
}

// Bytes of the vectors of one warp.
size_t VectorBytes(const FlowLayout& layout, const FlowPlan& plan) {
  const int parts = KindOf(plan) == FlowSolveKind::kTangents ? 1 + kFlowTangents : 1;
  const int halves = (layout.outputs + 3) / 4;
  return static_cast<size_t>((kSlotSlope1 + StagesOf(layout, plan)) * parts * halves) * kLaneRows *
         32 * sizeof(float);
}

// The most warps of a block: whole warpgroups, fewer where long tableaux on deep nets leave no room
// for the vectors of all; 0: the image does not fit.
int WarpsOf(const FlowProgram& program, const FlowPlan& plan) {
  if (program.layout.bytes > static_cast<uint32_t>(program.shared_bytes_max)) return 0;
  const size_t room = static_cast<size_t>(program.shared_bytes_max) - program.layout.bytes;
  const size_t warps = room / VectorBytes(program.layout, plan);
  return static_cast<int>(std::min<size_t>(FlowWarps(KindOf(plan)), warps)) / 4 * 4;
}

struct Shape {
  FlowSolveKind kind;
  int warps;  // of a block
  int64_t blocks;
};

// Of few rows, each multiprocessor has its own sixteen.
bool TeamTakes(const FlowProgram& program, const FlowPlan& plan, int64_t rows) {
  const size_t bytes = program.layout.bytes + FlowTeamMemoryBytes(program.layout.width) +
                       FlowTeamWarps(program.layout.width) * VectorBytes(program.layout, plan);
  return plan.density == FlowDensity::kNone && rows <= program.multiprocessors * kWarpRows &&
         bytes <= static_cast<size_t>(program.shared_bytes_max);
}

// Precondition: FlowFits(program, plan).
Shape ShapeOf(const FlowProgram& program, const FlowPlan& plan, int64_t rows) {
  if (TeamTakes(program, plan, rows)) {
    return {.kind = FlowSolveKind::kTeam,
            .warps = FlowTeamWarps(program.layout.width),
            .blocks = (rows + kWarpRows - 1) / kWarpRows};
  }
  const int64_t groups = (rows + kGroupRows - 1) / kGroupRows;
  const int64_t blocks = std::min<int64_t>(groups, program.multiprocessors);
  // Warpgroups that have no rows would take turns with those that have.
  const int64_t warpgroups =
      std::min<int64_t>((groups + blocks - 1) / blocks, WarpsOf(program, plan) / 4);
  return {.kind = KindOf(plan), .warps = static_cast<int>(4 * warpgroups), .blocks = blocks};
}

FlowSteps StepsOf(const FlowPlan& plan, const FlowLayout& layout) {
  FlowSteps steps = {};
  const bool by_table = layout.evaluations >= 0;
  steps.steps = by_table ? 1 : plan.steps;
  const double eps = (plan.s1 - plan.s0) / steps.steps;
  steps.stages = StagesOf(layout, plan);
  steps.hypersolved = plan.hypersolved && layout.corrected;
  steps.density = plan.density;
  steps.restarts_tangents = !(plan.hypersolved && layout.correction.reads_first_state);
  steps.to_data = plan.to_data;
  for (size_t i = 0; i < kStagesMax; ++i) {
    for (size_t j = 0; j < i; ++j) {
      steps.weights[i][j] = static_cast<float>(eps * plan.tableau.a[i][j]);
    }
    steps.c[i] = static_cast<float>(eps * plan.tableau.c[i]);
  }
  for (size_t j = 0; j < kStagesMax; ++j) {
    steps.weights[plan.tableau.solution_stages()][j] = static_cast<float>(eps * plan.tableau.b[j]);
  }
  steps.g = by_table ? 1.0f : static_cast<float>(std::pow(eps, plan.tableau.order + 1));
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
  if (layout.precision == FlowPrecision::kExact) {
    if (error == cudaSuccess) error = PrepareAdaptiveFlow(made);
    if (error == cudaSuccess) *program = made;
    return error;
  }
  for (const FlowSolveKind kind :
       {FlowSolveKind::kValues, FlowSolveKind::kTangents, FlowSolveKind::kTeam}) {
    const auto* kernel = reinterpret_cast<const void*>(KernelOf(kind, layout));
    if (error != cudaSuccess || kernel == nullptr) continue;
    const int fixed = kind == FlowSolveKind::kTeam ? FlowTeamMemoryBytes(layout.width) : 0;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 made.shared_bytes_max - fixed);
  }
  if (error == cudaSuccess) *program = made;
  return error;
}

bool FlowFits(const FlowProgram& program, const FlowPlan& plan) {
  return KernelOf(KindOf(plan), program.layout) != nullptr && WarpsOf(program, plan) > 0;
}

cudaError_t SolveFlow(const FlowProgram& program, const FlowPlan& plan, const FlowRows& rows,
                      cudaStream_t stream) {
  if (rows.count == 0) return cudaSuccess;
  FlowLaunch launch{.layout = program.layout,
                    .image = static_cast<const uint4*>(program.image),
                    .steps = StepsOf(plan, program.layout),
                    .rows = rows};
  if (!FlowFits(program, plan)) return cudaErrorInvalidValue;
  const Shape shape = ShapeOf(program, plan, rows.count);
  const size_t shared =
      program.layout.bytes + static_cast<size_t>(shape.warps) * VectorBytes(program.layout, plan);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.warps) * 32);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  void* arguments[] = {&launch};
  const auto* kernel = reinterpret_cast<const void*>(KernelOf(shape.kind, program.layout));
  return LaunchByGraph(config, kernel, arguments);
}

}  // namespace hyperserve::kernels
