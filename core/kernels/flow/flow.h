// Whole fixed-step solves of MLP flows in one launch, tier fast: fp16 operands, fp32 sums, first
// and last layers and the state in fp32. The readable twin is TwinSolve (flow_twin.h).
//
//   FlowImage image = PackFlow(model);            once per model; copy image.bytes to the device
//   PrepareFlow(image.layout, bytes, &program);   once per device
//   SolveFlow(program, plan, rows, stream);       one launch (graph_launch.h); waits for nothing
//
// A row's bits depend on the row and the plan alone, never on the rows beside it.
#pragma once

#include <cuda_runtime_api.h>

#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"

namespace hyperserve::kernels {

// A packed flow on one device. Plain data; valid while the image stays where it is.
struct FlowProgram {
  FlowLayout layout;
  const void* image = nullptr;  // device memory, 16-byte aligned
  int multiprocessors = 0;
  int shared_bytes_max = 0;  // of a block
};

// For the current device. `image`: a copy of FlowImage::bytes on it.
cudaError_t PrepareFlow(const FlowLayout& layout, const void* image, FlowProgram* program);

// Whether the image and the slopes of the plan's stages fit into shared memory; a log-density wants
// a model of at most kFlowTangents dimensions, too.
bool FlowFits(const FlowProgram& program, const FlowPlan& plan);

// Preconditions: plan.steps >= 1; plan.hypersolved only with a correction; the program's device is
// current. cudaErrorInvalidValue: not FlowFits(program, plan). Returns the status of the launch and
// waits for nothing. The rows' memory must stay until the stream has done the work.
cudaError_t SolveFlow(const FlowProgram& program, const FlowPlan& plan, const FlowRows& rows,
                      cudaStream_t stream);

// Solves under error control, of images that were packed for tier exact. The controller is
// flow_control.h. A launch ends after kFlowRoundsMax rounds, each an evaluation of f of all rows
// under way.
inline constexpr int kFlowRoundsMax = 1200;
cudaError_t PrepareAdaptiveFlow(const FlowProgram& program);  // called by PrepareFlow
bool FlowFits(const FlowProgram& program, const FlowAdaptivePlan& plan);
// The rows that are under way at once. Precondition: FlowFits(program, plan).
int64_t FlowRowsUnderWay(const FlowProgram& program, const FlowAdaptivePlan& plan);
// Preconditions: the tableau is embedded and first same as last; the program's device is current.
// cudaErrorInvalidValue: not FlowFits(program, plan).
cudaError_t SolveFlow(const FlowProgram& program, const FlowAdaptivePlan& plan,
                      const FlowRows& rows, cudaStream_t stream);

}  // namespace hyperserve::kernels
