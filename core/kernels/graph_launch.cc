#include "core/kernels/graph_launch.h"

#include <map>
#include <tuple>
#include <utility>

namespace hyperserve::kernels {
namespace {

// A graph of one kernel.
class KernelGraph {
 public:
  KernelGraph() = default;
  KernelGraph(const KernelGraph&) = delete;
  KernelGraph& operator=(const KernelGraph&) = delete;
  ~KernelGraph() {
    // Where the process ends, CUDA may have ended before.
    if (made_ != nullptr) cudaGraphExecDestroy(made_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }

  cudaError_t Launch(const cudaKernelNodeParams& kernel, unsigned cluster, cudaStream_t stream) {
    const cudaError_t error = made_ == nullptr
                                  ? Make(kernel, cluster)
                                  : cudaGraphExecKernelNodeSetParams(made_, node_, &kernel);
    return error == cudaSuccess ? cudaGraphLaunch(made_, stream) : error;
  }

 private:
  cudaError_t Make(const cudaKernelNodeParams& kernel, unsigned cluster) {
    // What a failed call left behind would keep that call's arguments.
    if (graph_ != nullptr) cudaGraphDestroy(std::exchange(graph_, nullptr));
    cudaError_t error = cudaGraphCreate(&graph_, 0);
    if (error == cudaSuccess) error = cudaGraphAddKernelNode(&node_, graph_, nullptr, 0, &kernel);
    if (error == cudaSuccess && cluster > 1) {
      cudaKernelNodeAttrValue value = {};
      value.clusterDim = {cluster, 1, 1};
      error = cudaGraphKernelNodeSetAttribute(node_, cudaLaunchAttributeClusterDimension, &value);
    }
    return error == cudaSuccess ? cudaGraphInstantiate(&made_, graph_, 0) : error;
  }

  cudaGraph_t graph_ = nullptr;
  cudaGraphNode_t node_ = nullptr;
  cudaGraphExec_t made_ = nullptr;
};

// Blocks of a cluster; 1: there are none.
unsigned ClusterOf(const cudaLaunchConfig_t& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) {
      return config.attrs[i].val.clusterDim.x;
    }
  }
  return 1;
}

}  // namespace

cudaError_t LaunchByGraph(const cudaLaunchConfig_t& config, const void* kernel, void** arguments) {
  // Device, kernel, blocks of a cluster, stream.
  using Key = std::tuple<int, const void*, unsigned, cudaStream_t>;
  thread_local std::map<Key, KernelGraph> graphs;
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const unsigned cluster = ClusterOf(config);
  const cudaKernelNodeParams params{
      .func = const_cast<void*>(kernel),
      .gridDim = config.gridDim,
      .blockDim = config.blockDim,
      .sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes),
      .kernelParams = arguments,
      .extra = nullptr};
  const cudaError_t launched =
      graphs[Key(device, kernel, cluster, config.stream)].Launch(params, cluster, config.stream);
  // The runtime remembers an error until it is asked for.
  const cudaError_t last = cudaGetLastError();
  return launched == cudaSuccess ? last : launched;
}

}  // namespace hyperserve::kernels
