// Linked into builds with CUDA: captures work as CUDA graphs.
#include <ATen/Context.h>
#include <ATen/cuda/MemPool.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <utility>
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

// Not LibTorch's CUDAGraph: it registers with the random generator, which all threads share without
// a lock, so that works could not be captured or destroyed side by side. Ours draw no numbers.
class Graph final : public CapturedWork {
 public:
  Graph(at::cuda::MempoolId_t pool, const c10::cuda::CUDAStream& stream,
        const std::function<void()>& work)
      : device_(stream.device_index()), pool_(pool) {
    cudaGraph_t graph = nullptr;
    const std::exception_ptr failure = Record(stream, work, &graph);
    try {
      if (failure) std::rethrow_exception(failure);
      CheckNoHostCopies(graph);
      Check(cudaGraphInstantiate(&program_, graph, cudaGraphInstantiateFlagUseNodePriority));
      Check(cudaGraphDestroy(std::exchange(graph, nullptr)));
      Check(cudaGraphUpload(program_, stream.stream()));
    } catch (...) {
      if (graph != nullptr) cudaGraphDestroy(graph);
      Release();
      throw;
    }
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() override { Release(); }

  void Start() override { Check(cudaGraphLaunch(program_, c10::cuda::getCurrentCUDAStream())); }

 private:
  // The capture ends in any case; where the work failed, its own error says more. Memory that the
  // work allocates on the stream is the pool's.
  std::exception_ptr Record(const c10::cuda::CUDAStream& stream, const std::function<void()>& work,
                            cudaGraph_t* graph) {
    const auto on_stream = [own = stream.stream()](cudaStream_t other) { return other == own; };
    c10::cuda::CUDACachingAllocator::beginAllocateToPool(device_, pool_, on_stream);
    std::exception_ptr failure;
    try {
      Check(cudaStreamBeginCapture(stream.stream(), cudaStreamCaptureModeThreadLocal));
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      Check(cudaStreamEndCapture(stream.stream(), graph));
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_);
    return failure;
  }

  void Release() {
    if (program_ != nullptr) cudaGraphExecDestroy(program_);
    c10::cuda::CUDACachingAllocator::releasePool(device_, pool_);  // a use of it each
  }

  const c10::DeviceIndex device_;
  const at::cuda::MempoolId_t pool_;
  cudaGraphExec_t program_ = nullptr;
};

// Nothing runs on the stream of a lane: so the workspace of cuBLAS, which LibTorch keeps for each
// stream, is first asked for in a capture, and belongs to the lane's graphs alone.
class CudaLane final : public CaptureLane {
 public:
  explicit CudaLane(const c10::Stream& stream) : stream_(stream) {}

  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& work) override {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    return std::make_unique<Graph>(pool_.id(), stream_, work);
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
