// Linked into builds with CUDA: captures work as CUDA graphs.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/MemPool.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <vector>

#include "core/engine/captured/captured_work.h"
#include "core/engine/device.h"

namespace hyperserve {
namespace {

void Check(cudaError_t error) {
  TORCH_CHECK(error == cudaSuccess, "CUDA: ", cudaGetErrorString(error));
}

// A copy from or to memory of the host would use what stands there when the graph runs.
void CheckNoHostCopies(cudaGraph_t graph) {
  size_t count = 0;
  Check(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  Check(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    Check(cudaGraphNodeGetType(node, &type));
    TORCH_CHECK(type != cudaGraphNodeTypeHost, "a step calls the host");
    if (type != cudaGraphNodeTypeMemcpy) continue;
    cudaMemcpy3DParms copy = {};
    Check(cudaGraphMemcpyNodeGetParams(node, &copy));
    const bool of_host = copy.kind == cudaMemcpyHostToDevice ||
                         copy.kind == cudaMemcpyDeviceToHost || copy.kind == cudaMemcpyHostToHost;
    TORCH_CHECK(!of_host, "a step copies memory of the host");
  }
}

class Graph final : public CapturedWork {
 public:
  Graph(at::cuda::MempoolId_t pool, cudaStream_t stream, const std::function<void()>& work)
      : graph_(/*keep_graph=*/true) {
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    // The capture ends in any case; where the work failed, its own error says more.
    try {
      graph_.capture_end();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
    if (failure) std::rethrow_exception(failure);
    CheckNoHostCopies(graph_.raw_cuda_graph());
    graph_.instantiate();
    Check(cudaGraphUpload(graph_.raw_cuda_graph_exec(), stream));
  }

  // Not by LibTorch's replay, which also serves its random generator: all threads share that.
  void Start() override {
    Check(cudaGraphLaunch(graph_.raw_cuda_graph_exec(), c10::cuda::getCurrentCUDAStream()));
  }

 private:
  at::cuda::CUDAGraph graph_;
};

// Nothing runs on the stream of a lane: so the workspace of cuBLAS, which LibTorch keeps for each
// stream, is first asked for in a capture, and belongs to the lane's graphs alone.
class CudaLane final : public CaptureLane {
 public:
  explicit CudaLane(const c10::Stream& stream) : stream_(stream) {}

  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& work) override {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    return std::make_unique<Graph>(pool_.id(), stream_.stream(), work);
  }

 private:
  const c10::cuda::CUDAStream stream_;
  at::cuda::MemPool pool_;
};

}  // namespace

std::unique_ptr<CaptureLane> CudaCaptureLane(const c10::Stream& stream) {
  at::globalContext().lazyInitDevice(at::kCUDA);  // a pool wants its allocator
  const c10::DeviceGuard guard(stream.device());
  return std::make_unique<CudaLane>(stream);
}

}  // namespace hyperserve
