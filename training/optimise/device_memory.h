// The memory that LibTorch holds on a GPU.
#pragma once

#include <ATen/ATen.h>

#include <string>

namespace hyperserve {

// "GPU memory 312 MiB, at most 1490 MiB": what tensors hold now, and the most so far. Empty on the
// CPU. Waits for nothing.
std::string DeviceMemoryText(at::Device device);

}  // namespace hyperserve
