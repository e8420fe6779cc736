#include <algorithm>
#include <cmath>

#include "core/kernels/conv/conv.h"
#include "core/kernels/conv/conv_kernel.cuh"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {
namespace {

ConvGeometry GeometryOf(const ConvLayout& layout, int blocks) {
  ConvGeometry geometry{.blocks = blocks,
                        .block_rows = (layout.height + blocks - 1) / blocks,
                        .pitch = layout.width + 1};
  geometry.pitch_inverse = (1 << 16) / geometry.pitch + 1;
  geometry.tiles = (geometry.block_rows * geometry.pitch + kTilePixels - 1) / kTilePixels;
  // The last tile's taps end at its last pixel and two rows and two columns more.
  const int pixels = geometry.tiles * kTilePixels + 2 * geometry.pitch + 2;
  geometry.plane_bytes = static_cast<uint32_t>(pixels) * 16;
  return geometry;
}

size_t SharedBytes(const ConvLayout& layout, const ConvGeometry& geometry) {
  return static_cast<size_t>(layout.planes + layout.planes_aside) * geometry.plane_bytes +
         2 * static_cast<size_t>(layout.layer_bytes) + kArrivalBytes;
}

bool Fits(const ConvProgram& program, const ConvGeometry& geometry) {
  return geometry.tiles <= kConvGroups * kGroupTiles &&
         SharedBytes(program.layout, geometry) <= static_cast<size_t>(program.shared_bytes_max);
}

ConvSteps StepsOf(const ConvPlan& plan) {
  ConvSteps steps = {};
  const double eps = (plan.s1 - plan.s0) / plan.steps;
  steps.steps = plan.steps;
  steps.stages = plan.tableau.solution_stages();
  steps.hypersolved = plan.hypersolved;
  for (int i = 0; i <= steps.stages; ++i) {
    const auto& row = i < steps.stages ? plan.tableau.a[static_cast<size_t>(i)] : plan.tableau.b;
    for (size_t j = 0; j < kStagesMax; ++j) steps.a[i][j] = static_cast<float>(eps * row[j]);
  }
  for (size_t i = 0; i < kStagesMax; ++i) {
    steps.c[i] = static_cast<float>(eps * plan.tableau.c[i]);
  }
  steps.g = static_cast<float>(std::pow(eps, plan.tableau.order + 1));
  steps.eps = static_cast<float>(eps);
  steps.s0 = static_cast<float>(plan.s0);
  return steps;
}

// A launch's configuration; `attribute` belongs to the caller and must outlive it.
cudaLaunchConfig_t ConfigOf(const ConvProgram& program, const ConvGeometry& geometry,
                            cudaLaunchAttribute& attribute) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(geometry.blocks));
  config.blockDim = dim3(kConvThreads);
  config.dynamicSmemBytes = SharedBytes(program.layout, geometry);
  if (geometry.blocks > 1) {
    attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(geometry.blocks), 1, 1};
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  return config;
}

// Images that the device solves at once with clusters of this geometry.
cudaError_t CountClusters(const ConvProgram& program, const ConvGeometry& geometry, int* count) {
  cudaLaunchAttribute attribute;
  const cudaLaunchConfig_t config = ConfigOf(program, geometry, attribute);
  if (geometry.blocks > 1) return cudaOccupancyMaxActiveClusters(count, ConvKernel, &config);
  *count = program.multiprocessors;
  return cudaSuccess;
}

}  // namespace

cudaError_t PrepareConv(const ConvLayout& layout, const void* image, ConvProgram* program) {
  int device = 0, major = 0;
  ConvProgram made{.layout = layout, .image = image};
  cudaError_t error = cudaGetDevice(&device);
  const auto read = [&](cudaDeviceAttr what, int* value) {
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(value, what, device);
  };
  read(cudaDevAttrMultiProcessorCount, &made.multiprocessors);
  read(cudaDevAttrMaxSharedMemoryPerBlockOptin, &made.shared_bytes_max);
  read(cudaDevAttrComputeCapabilityMajor, &major);
  if (error == cudaSuccess) {
    error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(ConvKernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, made.shared_bytes_max);
  }
  for (int i = 0; error == cudaSuccess && i < 4; ++i) {
    const ConvGeometry geometry = GeometryOf(layout, 1 << i);
    if ((i > 0 && major < 9) || !Fits(made, geometry)) continue;
    error = CountClusters(made, geometry, &made.images_at_once[i]);
  }
  if (error == cudaSuccess) *program = made;
  return error;
}

bool ConvFits(const ConvProgram& program) { return ConvBlocksOf(program, 1) > 0; }

int ConvBlocksOf(const ConvProgram& program, int64_t count) {
  int fewest = 0;
  for (int i = 3; i >= 0; --i) {
    if (program.images_at_once[i] == 0) continue;
    fewest = 1 << i;
    if (count <= program.images_at_once[i]) return fewest;
  }
  return fewest;
}

size_t ConvScratchBytes(const ConvProgram& program, const ConvPlan& plan) {
  const auto vectors = static_cast<size_t>(plan.tableau.solution_stages());
  return static_cast<size_t>(program.multiprocessors) * vectors * kVectorFloats * sizeof(float);
}

cudaError_t SolveConv(const ConvProgram& program, const ConvPlan& plan, const ConvRows& rows,
                      cudaStream_t stream, int blocks) {
  if (rows.count == 0) return cudaSuccess;
  if (blocks == 0) blocks = ConvBlocksOf(program, rows.count);
  if (blocks == 0) return cudaErrorInvalidValue;
  int index = 0;
  while (1 << index < blocks) ++index;
  const ConvLaunch launch{.layout = program.layout,
                          .image = static_cast<const uint4*>(program.image),
                          .steps = StepsOf(plan),
                          .geometry = GeometryOf(program.layout, blocks),
                          .rows = rows};
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = ConfigOf(program, launch.geometry, attribute);
  const auto solvers = std::min<int64_t>(rows.count, program.images_at_once[index]);
  config.gridDim = dim3(static_cast<unsigned>(solvers * blocks));
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, ConvKernel, launch);
  return error == cudaSuccess ? cudaGetLastError() : error;
}

}  // namespace hyperserve::kernels
