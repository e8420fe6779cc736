#include <cuda_runtime_api.h>

#include "tests/core/engine/bad_device.h"

namespace hyperserve::fixture {
namespace {

__global__ void Trap() { __trap(); }

}  // namespace

void* TakeDeviceMemory(int64_t left) {
  size_t free = 0, all = 0;
  void* memory = nullptr;
  if (cudaMemGetInfo(&free, &all) != cudaSuccess) return nullptr;
  if (free <= static_cast<size_t>(left)) return nullptr;
  return cudaMalloc(&memory, free - static_cast<size_t>(left)) == cudaSuccess ? memory : nullptr;
}

void GiveDeviceMemory(void* memory) { cudaFree(memory); }

void TrapDevice() {
  Trap<<<1, 1>>>();
  cudaDeviceSynchronize();
}

}  // namespace hyperserve::fixture
