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

#include <cstdint>

#include "core/kernels/flow_image.h"
#include "core/kernels/flow_model.h"

namespace hyperserve::kernels {

// A packed flow on one device. Plain data; valid while the image stays where it is.
struct FlowProgram {
  FlowLayout layout;
  const void* image = nullptr;  // device memory, 16-byte aligned
  int multiprocessors = 0;
  int shared_bytes_max = 0;  // of a block
};

// All pointers are device memory, row-major.
struct FlowRows {
  int64_t count = 0;
  const float* z0 = nullptr;  // [count, dimensions]; null: noise of (seed, first_row + row)
  uint64_t seed = 0, first_row = 0;
  float* z1 = nullptr;  // [count, dimensions]
  // [count]; 1 where an input of a net was beyond what fp16 is known to carry, or not a number: the
  // row must be solved in another tier. Null: nobody asks.
  uint8_t* unfit = nullptr;
};

// For the current device. `image`: a copy of FlowImage::bytes on it.
cudaError_t PrepareFlow(const FlowLayout& layout, const void* image, FlowProgram* program);

// Preconditions: plan.steps >= 1; plan.hypersolved only with a correction; the program's device is
// current. cudaErrorInvalidValue: the image and the plan's stages do not fit in shared memory.
cudaError_t SolveFlow(const FlowProgram& program, const FlowPlan& plan, const FlowRows& rows,
                      cudaStream_t stream);

}  // namespace hyperserve::kernels
