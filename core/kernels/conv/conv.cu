#include <algorithm>
#include <array>
#include <cmath>
#include <variant>

#include "core/kernels/conv/conv.h"
#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_launch.h"
#include "core/kernels/conv/conv_planes.cuh"
#include "core/kernels/graph_launch.h"
#include "core/ode/tableau.h"

namespace hyperserve::kernels {
namespace {

constexpr int kPortableBlocks = 8;  // that every device with clusters takes

// What a readout works on. Its planes follow all else in shared memory.
ConvLayout ReadoutOf(ConvLayout layout) {
  layout.height /= std::max(layout.readout_scale, 1);
  layout.width /= std::max(layout.readout_scale, 1);
  layout.planes = layout.readout_planes;
  layout.planes_aside = 0;
  layout.readout_scale = 0;
  return layout;
}

// With a readout at half the resolution a block has whole pairs of rows.
ConvGeometry GeometryOf(const ConvLayout& layout, int blocks) {
  const int rows = std::max(layout.readout_scale, 1);
  ConvGeometry geometry{.blocks = blocks,
                        .block_rows = rows * ((layout.height / rows + blocks - 1) / blocks),
                        .pitch = layout.width + 1};
  geometry.pitch_inverse = (1 << 16) / geometry.pitch + 1;
  geometry.tiles = (geometry.block_rows * geometry.pitch + kTilePixels - 1) / kTilePixels;
  // The last tile's taps end at its last pixel and two rows and two columns more.
  const int pixels = geometry.tiles * kTilePixels + 2 * geometry.pitch + 2;
  geometry.plane_bytes = static_cast<uint32_t>(pixels) * 16;
  return geometry;
}

uint32_t PlanesBytes(const ConvLayout& layout, const ConvGeometry& geometry) {
  const int planes = geometry.sets * layout.planes + layout.planes_aside;
  return static_cast<uint32_t>(planes) * geometry.plane_bytes +
         (geometry.sets == 1 ? kArrivalBytes : kRelayBytes);
}

// Without the planes of a readout.
uint32_t WholeBytes(const ConvLayout& layout, const ConvGeometry& geometry) {
  return PlanesBytes(layout, geometry) + 2 * layout.layer_bytes + kWarpNumbersBytes;
}

size_t SharedBytes(const ConvLayout& layout, const ConvGeometry& geometry) {
  const ConvLayout readout = ReadoutOf(layout);
  return WholeBytes(layout, geometry) +
         (layout.readout_scale > 0 ? PlanesBytes(readout, GeometryOf(readout, geometry.blocks))
                                   : 0);
}

// A warpgroup keeps what it made of a layer, each part of it, in registers.
bool ReadoutFits(const ConvLayout& layout, int blocks) {
  if (layout.readout_scale == 0) return true;
  const int tiles = GeometryOf(ReadoutOf(layout), blocks).tiles;
  const int parts = layout.readout_planes / (kConvChannelsMax / 8);
  return (tiles + kConvGroups - 1) / kConvGroups * parts <= kGroupTiles;
}

bool Fits(const ConvProgram& program, const ConvGeometry& geometry) {
  return geometry.tiles <= kConvGroups * kGroupTiles &&
         ReadoutFits(program.layout, geometry.blocks) &&
         SharedBytes(program.layout, geometry) <= static_cast<size_t>(program.shared_bytes_max);
}

// Of fixed plans.
const void* FixedKernel(const ConvLayout& layout) {
  return layout.evaluations > 0 ? ConvTableKernel(layout.readout_scale > 0) : ConvStepsKernel();
}

bool FitsRelay(const ConvProgram& program, ConvGeometry geometry) {
  geometry.sets = 2;
  return geometry.blocks > 1 && geometry.pitch < kTilePixels && Fits(program, geometry);
}

// The kernels of a layout's plans.
std::array<const void*, 3> KernelsOf(const ConvLayout& layout) {
  return {FixedKernel(layout), ConvRelayKernel(), ConvAdaptiveKernel()};
}

// What a kernel is told of a task, and the vectors of a block in the scratch memory.
struct Work {
  const void* kernel;
  ConvSteps steps = {};
  ConvControl control = {};
  int vectors = 0;
};

// The rows of a tableau times `scale`; row `stages` is b.
void PutTableau(const Tableau& tableau, int stages, double scale, ConvSteps& steps) {
  steps.stages = stages;
  for (int i = 0; i <= stages; ++i) {
    const StageWeights& row = i < stages ? tableau.a[static_cast<size_t>(i)] : tableau.b;
    for (size_t j = 0; j < kStagesMax; ++j) steps.a[i][j] = static_cast<float>(scale * row[j]);
  }
  for (size_t i = 0; i < kStagesMax; ++i) {
    steps.c[i] = static_cast<float>(scale * tableau.c[i]);
  }
}

Work WorkOf(const ConvLayout& layout, const ConvPlan& plan) {
  Work work{.kernel = FixedKernel(layout)};
  const double eps = (plan.s1 - plan.s0) / plan.steps;
  PutTableau(plan.tableau, plan.tableau.solution_stages(), eps, work.steps);
  work.steps.steps = plan.steps;
  work.steps.hypersolved = plan.hypersolved;
  work.steps.g = static_cast<float>(std::pow(eps, plan.tableau.order + 1));
  work.steps.eps = static_cast<float>(eps);
  work.steps.s0 = static_cast<float>(plan.s0);
  work.vectors =
      layout.evaluations > 0 ? layout.evaluations + layout.readout_parts : work.steps.stages;
  return work;
}

Work WorkOf(const ConvLayout&, const ConvAdaptivePlan& plan) {
  Work work{.kernel = ConvAdaptiveKernel()};
  PutTableau(plan.tableau, plan.tableau.stages(), 1.0, work.steps);
  work.steps.s0 = static_cast<float>(plan.s0);
  work.control = {.embedded_order = plan.tableau.embedded_order,
                  .attempts_max = static_cast<int>(std::min<int64_t>(plan.attempts_max, 1 << 30)),
                  .evaluations_max = kConvEvaluationsOfLaunch,
                  .rtol = static_cast<float>(plan.rtol),
                  .atol = static_cast<float>(plan.atol),
                  .s1 = static_cast<float>(plan.s1)};
  for (size_t j = 0; j < kStagesMax; ++j) {
    work.control.error[j] = static_cast<float>(plan.tableau.error[j]);
  }
  work.vectors = 3 + work.steps.stages;
  return work;
}

Work WorkOf(const ConvProgram& program, const ConvTask& task) {
  return std::visit([&](const auto& plan) { return WorkOf(program.layout, plan); }, task);
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
  *count = program.multiprocessors;
  if (geometry.blocks == 1) return cudaSuccess;
  const cudaError_t error =
      cudaOccupancyMaxActiveClusters(count, FixedKernel(program.layout), &config);
  if (error == cudaSuccess || geometry.blocks <= kPortableBlocks) return error;
  cudaGetLastError();  // this device does not take so many
  *count = 0;
  return cudaSuccess;
}

}  // namespace

cudaError_t PrepareConv(const ConvLayout& layout, const void* image, ConvProgram* program) {
  int device = 0;
  ConvProgram made{.layout = layout, .image = image};
  cudaError_t error = cudaGetDevice(&device);
  const auto read = [&](cudaDeviceAttr what, int* value) {
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(value, what, device);
  };
  read(cudaDevAttrMultiProcessorCount, &made.multiprocessors);
  read(cudaDevAttrMaxSharedMemoryPerBlockOptin, &made.shared_bytes_max);
  for (const void* kernel : KernelsOf(layout)) {
    if (error != cudaSuccess) break;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 made.shared_bytes_max);
  }
  // A newer device may run code that was made for one without clusters.
  cudaFuncAttributes code = {};
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&code, FixedKernel(layout));
  const bool has_clusters = code.ptxVersion >= 90;
  for (const void* kernel : KernelsOf(layout)) {
    if (error != cudaSuccess || !has_clusters) break;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  for (size_t i = 0; error == cudaSuccess && i < kConvBlocks.size(); ++i) {
    const ConvGeometry geometry = GeometryOf(layout, kConvBlocks[i]);
    if ((i > 0 && !has_clusters) || !Fits(made, geometry)) continue;
    error = CountClusters(made, geometry, &made.images_at_once[i]);
  }
  if (error == cudaSuccess) *program = made;
  return error;
}

bool ConvFits(const ConvProgram& program) { return ConvBlocksOf(program, 1) > 0; }

int ConvBlocksOf(const ConvProgram& program, int64_t count) {
  int fewest = 0;
  for (size_t i = kConvBlocks.size(); i-- > 0;) {
    if (program.images_at_once[i] == 0) continue;
    fewest = kConvBlocks[i];
    if (count <= program.images_at_once[i]) return fewest;
  }
  return fewest;
}

size_t ConvScratchBytes(const ConvProgram& program, const ConvTask& task) {
  const auto vectors = static_cast<size_t>(WorkOf(program, task).vectors);
  return static_cast<size_t>(program.multiprocessors) * vectors * kVectorFloats * sizeof(float);
}

cudaError_t SolveConv(const ConvProgram& program, const ConvTask& task, const ConvRows& rows,
                      cudaStream_t stream, int blocks) {
  if (rows.count == 0) return cudaSuccess;
  if (blocks == 0) blocks = ConvBlocksOf(program, rows.count);
  const auto index =
      static_cast<size_t>(std::ranges::find(kConvBlocks, blocks) - kConvBlocks.begin());
  if (index == kConvBlocks.size()) return cudaErrorInvalidValue;
  Work work = WorkOf(program, task);
  ConvLaunch launch{.layout = program.layout,
                    .image = static_cast<const uint4*>(program.image),
                    .steps = work.steps,
                    .control = work.control,
                    .geometry = GeometryOf(program.layout, blocks),
                    .planes = 0,
                    .vectors = work.vectors,
                    .rows = rows};
  if (work.kernel == ConvStepsKernel() && FitsRelay(program, launch.geometry)) {
    launch.geometry.sets = 2;
    work.kernel = ConvRelayKernel();
  }
  ConvLaunch readout = launch;
  readout.layout = ReadoutOf(launch.layout);
  readout.geometry = GeometryOf(readout.layout, blocks);
  readout.planes = WholeBytes(launch.layout, launch.geometry);
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = ConfigOf(program, launch.geometry, attribute);
  const auto solvers = std::min<int64_t>(rows.count, program.images_at_once[index]);
  config.gridDim = dim3(static_cast<unsigned>(solvers * blocks));
  config.stream = stream;
  void* arguments[] = {&launch, &readout};
  return LaunchByGraph(config, work.kernel, arguments);
}

}  // namespace hyperserve::kernels
