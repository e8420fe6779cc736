// What the benches of kernels share: memory of the device and the host time of launches.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace hyperserve::kernels {

inline constexpr int kRepeats = 200, kWarmUps = 50;

// Ends the program where a call has failed.
inline void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T* Allocate(size_t count) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, count * sizeof(T)));
  return static_cast<T*>(memory);
}

// Host time from call to synchronise: the median.
template <class Launch>
double MedianSeconds(cudaStream_t stream, const Launch& launch) {
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUps + kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    launch();
    Check(cudaStreamSynchronize(stream));
    const auto end = std::chrono::steady_clock::now();
    if (i >= kWarmUps) seconds.push_back(std::chrono::duration<double>(end - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
  return seconds[kRepeats / 2];
}

}  // namespace hyperserve::kernels
