// Whole fixed-step solves of MLP flows in one launch, tier fast: fp16 operands, fp32 sums, first
// and last layers and the state in fp32. The readable twin is TwinSolve (flow_twin.h).
//
//   FlowImage image = PackFlow(model);            once per model; copy image.bytes to the device
//   PrepareFlow(image.layout, bytes, &program);   once per device
//   SolveFlow(program, plan, rows, stream);       one launch; nothing is allocated or waited for
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

// Whether the image and the slopes of so many stages fit into shared memory.
bool FlowFits(const FlowProgram& program, int stages);

// Preconditions: plan.steps >= 1; plan.hypersolved only with a correction; the program's device is
// current. cudaErrorInvalidValue: not FlowFits(program, the plan's stages).
cudaError_t SolveFlow(const FlowProgram& program, const FlowPlan& plan, const FlowRows& rows,
                      cudaStream_t stream);

}  // namespace hyperserve::kernels
