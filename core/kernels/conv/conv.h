// Whole solves of fields of 3x3 convolutions in one launch, tier fast: fp16 operands, fp32 sums,
// the state in fp32. By fixed steps, by a learned table, or under error control. The readable twin
// is TwinConvSolve (conv_twin.h).
//
//   ConvImage image = PackConv(model);            once per model; copy image.bytes to the device
//   PrepareConv(image.layout, bytes, &program);   once per device
//   SolveConv(program, task, rows, stream);       one launch (graph_launch.h); waits for nothing
//
// A row's bits depend on the row and the plan alone, never on the rows beside it.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_rows.h"

namespace hyperserve::kernels {

// The blocks that an image may have, a cluster of them. Devices need not take more than 8.
inline constexpr std::array kConvBlocks = {1, 2, 3, 4, 8, 16};

// A packed field on one device. Plain data; valid while the image stays where it is.
struct ConvProgram {
  ConvLayout layout;
  const void* image = nullptr;  // device memory, 16-byte aligned
  int multiprocessors = 0;
  int shared_bytes_max = 0;  // of a block
  // The images that the device solves at once with so many blocks to each as kConvBlocks says; 0:
  // does not fit.
  std::array<int, kConvBlocks.size()> images_at_once = {};
};

// For the current device. `image`: a copy of ConvImage::bytes on it.
cudaError_t PrepareConv(const ConvLayout& layout, const void* image, ConvProgram* program);

// Whether any number of kConvBlocks fits. Pure, on the host.
bool ConvFits(const ConvProgram& program);

// Blocks to an image: the most with which `count` images are solved at once, else the fewest.
int ConvBlocksOf(const ConvProgram& program, int64_t count);

// Of vectors of the state's size that a solve keeps. 16-byte aligned.
size_t ConvScratchBytes(const ConvProgram& program, const ConvTask& task);

// The most evaluations of f that a block makes in an adaptive launch, whatever the rows: 20 ms at
// 60 us. A block has one image after the other.
inline constexpr int kConvEvaluationsOfLaunch = 333;

// Preconditions: ConvFits(program); steps >= 1; hypersolved only with a correction; no adaptive
// plan with a table; the program's device is current. `blocks`: one of kConvBlocks
// that fits; 0: ConvBlocksOf. Returns the status of the launch and waits for nothing; any thread.
// Several solves of one program may be under way, each with scratch memory of its own.
cudaError_t SolveConv(const ConvProgram& program, const ConvTask& task, const ConvRows& rows,
                      cudaStream_t stream, int blocks = 0);

}  // namespace hyperserve::kernels
