// The kernel of a fused solve: blocks copy the image to shared memory once, then each warpgroup
// solves 64 rows after the other. One source file for each activation instantiates it, so that they
// compile side by side.
#pragma once

#include "core/kernels/flow/flow_dual.cuh"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_net.cuh"
#include "core/kernels/flow/flow_rows.cuh"
#include "core/kernels/flow/flow_rows.h"
#include "core/kernels/flow/flow_solve.cuh"
#include "core/kernels/flow/flow_team.cuh"
#include "core/kernels/flow/image_copy.cuh"
#include "core/kernels/flow/mma.cuh"

namespace hyperserve::kernels {

// Warps of a block: four warpgroups, and two of them where tangents take registers.
constexpr int FlowWarps(FlowSolveKind kind) { return kind == FlowSolveKind::kTangents ? 8 : 16; }
inline constexpr int kGroupRows = 4 * kWarpRows;  // of a warpgroup

struct FlowLaunch {
  FlowLayout layout;
  const uint4* image;
  FlowSteps steps;
  FlowRows rows;
};
using FlowKernelPointer = void (*)(FlowLaunch);

// First what the field's first layer reads. A table's nodes stand behind everything.
__device__ __forceinline__ void StartImageCopy(const FlowLaunch& launch) {
  const FlowLayout& layout = launch.layout;
  ImageCopy::Start(launch.image, layout.evaluations >= 0 ? layout.bytes : layout.field.square,
                   layout.bytes);
}

// log N(z) of the noise at either end, and the stretch between: each lane's part of them.
__device__ __forceinline__ LanePart LogDensity(const FlowLaunch& launch, const LaneVector<1>& noise,
                                               const LanePart& stretch) {
  constexpr float kHalfLogTau = 0.918938533f;
  const bool in_use = threadIdx.x % 4 < launch.layout.dimensions;
  LanePart sum;
#pragma unroll
  for (int m = 0; m < kLaneRows; ++m) {
    const float z = noise.v[m][0];
    sum.v[m] = in_use ? fmaf(-0.5f * z, z, -kHalfLogTau) : 0.0f;
    sum.v[m] += launch.steps.to_data ? -stretch.v[m] : stretch.v[m];
  }
  return sum;
}

template <FlowSolveKind kKind, FlowActivation kActivation, int kWidth, int kOutputs>
__global__ void __launch_bounds__(FlowWarps(kKind) * 32, 1)
    FlowKernel(const __grid_constant__ FlowLaunch launch) {
  using Solver = FlowSolver<kKind, kActivation, kWidth, kOutputs>;
  StartImageCopy(launch);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float* vectors = reinterpret_cast<float*>(flow_shared + launch.layout.bytes / 16) +
                   warp * (kSlotSlope1 + launch.steps.stages) * Solver::Vectors::kSlotFloats;
  const RowAccess<Solver::Net::kHalves> access(launch.rows, launch.layout.dimensions);
  Solver solver(launch.layout, launch.steps, typename Solver::Vectors(vectors));
  // Neighbouring groups of rows go to different multiprocessors.
  int group = warp / 4 * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  const int stride = static_cast<int>(gridDim.x * (blockDim.x / 128));
  const int groups = static_cast<int>((launch.rows.count + kGroupRows - 1) / kGroupRows);
  // Warpgroups that take turns make equally many, so the last may solve rows that nobody asked for.
  const int ahead = kKind == FlowSolveKind::kTangents ? warp / 4 * static_cast<int>(gridDim.x) : 0;
  if constexpr (kKind == FlowSolveKind::kTangents) ProductTurns::Begin();
  for (int turn = 0; turn == 0 || group - ahead < groups; ++turn) {
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
    if (turn == 0) {
      ImageCopy::AwaitFirst();
      ImageCopy::AwaitSecond();
    }
    if (group - ahead >= groups) break;
    uint32_t unfit = 0;
    const typename Solver::Vector end = solver.Solve(z, unfit);
    access.Write(first, end, unfit);
    if constexpr (kKind == FlowSolveKind::kTangents) {
      const typename Solver::Vector noise =
          launch.steps.to_data ? typename Solver::Vectors(vectors).Load(kSlotState0) : end;
      access.WriteLogDensity(first, LogDensity(launch, noise, solver.log_density()).v);
    }
    group += stride;
  }
  if constexpr (kKind == FlowSolveKind::kTangents) ProductTurns::End();
}

// For few rows: a block solves kWarpRows.
template <FlowActivation kActivation, int kWidth, int kOutputs>
__global__ void __launch_bounds__(FlowTeamWarps(kWidth) * 32)
    FlowTeamKernel(const __grid_constant__ FlowLaunch launch) {
  using Solver = FlowSolver<FlowSolveKind::kTeam, kActivation, kWidth, kOutputs>;
  const FlowLayout& layout = launch.layout;
  StartImageCopy(launch);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float* vectors = reinterpret_cast<float*>(flow_shared + layout.bytes / 16) +
                   warp * (kSlotSlope1 + launch.steps.stages) * Solver::Vectors::kSlotFloats;
  const RowAccess<Solver::Net::kHalves> access(launch.rows, layout.dimensions);
  Solver solver(layout, launch.steps, typename Solver::Vectors(vectors));
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarpRows;
  typename Solver::Vector z;
  if (launch.rows.z0 != nullptr) {
    z = access.Read(first);
  } else {
    typename Solver::Vector unused;
    access.Noise(first, first, z, unused);
  }
  ImageCopy::AwaitFirst();
  uint32_t unfit = 0;
  const typename Solver::Vector end = solver.Solve(z, unfit);
  if (warp == 0) access.Write(first, end, unfit);
}

template <FlowActivation kActivation, int kWidth>
FlowKernelPointer FlowKernelOfWidth(FlowSolveKind kind, int outputs) {
  using enum FlowSolveKind;
  switch (kind) {
    case kTangents:
      return outputs == 2 ? FlowKernel<kTangents, kActivation, kWidth, 2> : nullptr;
    case kTeam:
      return outputs == 2 ? FlowTeamKernel<kActivation, kWidth, 2>
                          : FlowTeamKernel<kActivation, kWidth, 8>;
    case kValues:
      return outputs == 2 ? FlowKernel<kValues, kActivation, kWidth, 2>
                          : FlowKernel<kValues, kActivation, kWidth, 8>;
  }
  return nullptr;
}

// For a layout's width and outputs; null: there is none.
template <FlowActivation kActivation>
FlowKernelPointer FlowKernelFor(FlowSolveKind kind, int width, int outputs) {
  return width == 64 ? FlowKernelOfWidth<kActivation, 64>(kind, outputs)
                     : FlowKernelOfWidth<kActivation, 128>(kind, outputs);
}

extern template FlowKernelPointer FlowKernelFor<FlowActivation::kSoftplus>(FlowSolveKind, int, int);
extern template FlowKernelPointer FlowKernelFor<FlowActivation::kTanh>(FlowSolveKind, int, int);
extern template FlowKernelPointer FlowKernelFor<FlowActivation::kSilu>(FlowSolveKind, int, int);
extern template FlowKernelPointer FlowKernelFor<FlowActivation::kRectifier>(FlowSolveKind, int,
                                                                            int);

}  // namespace hyperserve::kernels
