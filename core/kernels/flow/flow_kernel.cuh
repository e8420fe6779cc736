// The kernel of a fused solve: blocks copy the image to shared memory once, then each warpgroup
// solves 64 rows after the other. One source file for each activation instantiates it, so that they
// compile side by side.
#pragma once

#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/flow_rows.cuh"
#include "core/kernels/flow/flow_rows.h"
#include "core/kernels/flow/flow_solve.cuh"
#include "core/kernels/flow/mma.cuh"

namespace hyperserve::kernels {

inline constexpr int kFlowWarps = 16;             // of a block: four warpgroups
inline constexpr int kGroupRows = 4 * kWarpRows;  // of a warpgroup

struct FlowLaunch {
  FlowLayout layout;
  const uint4* image;
  FlowSteps steps;
  FlowRows rows;
};
using FlowKernelPointer = void (*)(FlowLaunch);

__device__ __forceinline__ void StartImageCopy(const uint4* image, uint32_t bytes) {
  for (uint32_t i = threadIdx.x; i < bytes / 16; i += blockDim.x) {
    const uint32_t target = static_cast<uint32_t>(__cvta_generic_to_shared(flow_shared + i));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(image + i)
                 : "memory");
  }
}

__device__ __forceinline__ void AwaitImageCopy() {
  asm volatile("cp.async.wait_all;" ::: "memory");
  PublishToProducts();
  __syncthreads();
}

template <FlowActivation kActivation, int kWidth, int kOutputs>
__global__ void __launch_bounds__(kFlowWarps * 32, 1)
    FlowKernel(const __grid_constant__ FlowLaunch launch) {
  using Solver = FlowSolver<kActivation, kWidth, kOutputs>;
  StartImageCopy(launch.image, launch.layout.bytes);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float* vectors = reinterpret_cast<float*>(flow_shared + launch.layout.bytes / 16) +
                   warp * (kSlotSlope1 + launch.steps.stages) * Solver::Vectors::kSlotFloats;
  const RowAccess<Solver::Field::kHalves> access(launch.rows, launch.layout.dimensions);
  Solver solver(launch.layout, launch.steps, typename Solver::Vectors(vectors));
  // Neighbouring groups of rows go to different multiprocessors.
  int group = warp / 4 * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  const int stride = static_cast<int>(gridDim.x * (blockDim.x / 128));
  const int groups = static_cast<int>((launch.rows.count + kGroupRows - 1) / kGroupRows);
  for (int turn = 0; turn == 0 || group < groups; ++turn) {
    const int64_t first = static_cast<int64_t>(group) * kGroupRows + warp % 4 * kWarpRows;
    typename Solver::Vector z;
    if (launch.rows.z0 != nullptr) {
      z = access.Read(first);
    } else if (turn % 2 == 0) {
      typename Solver::Vector next;
      access.Noise(first, first + static_cast<int64_t>(stride) * kGroupRows, z, next);
      typename Solver::Vectors(vectors).Store(kSlotNext, next);
    } else {
      z = typename Solver::Vectors(vectors).Load(kSlotNext);
    }
    if (turn == 0) AwaitImageCopy();
    if (group >= groups) break;
    uint32_t unfit = 0;
    z = solver.Solve(z, unfit);
    access.Write(first, z, unfit);
    group += stride;
  }
}

// For a layout's width and outputs.
template <FlowActivation kActivation>
FlowKernelPointer FlowKernelFor(int width, int outputs) {
  if (width == 64) {
    return outputs == 2 ? FlowKernel<kActivation, 64, 2> : FlowKernel<kActivation, 64, 8>;
  }
  return outputs == 2 ? FlowKernel<kActivation, 128, 2> : FlowKernel<kActivation, 128, 8>;
}

extern template FlowKernelPointer FlowKernelFor<FlowActivation::kSoftplus>(int, int);
extern template FlowKernelPointer FlowKernelFor<FlowActivation::kTanh>(int, int);
extern template FlowKernelPointer FlowKernelFor<FlowActivation::kSilu>(int, int);
extern template FlowKernelPointer FlowKernelFor<FlowActivation::kRectifier>(int, int);

}  // namespace hyperserve::kernels
