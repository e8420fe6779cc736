// How full the memory of a device is, and how full this process may make it. No type of LibTorch
// crosses this header.
#pragma once

#include <cstdint>
#include <string_view>

namespace hyperserve {

// The bytes in use now of the memory of "cpu" or "cuda:N", by all processes; 0: unknown. The
// process must use the device already: a first use takes some of its memory. Waits for no work of
// the device. Any thread; never fails.
int64_t MemoryInUse(std::string_view device);

// Bounds what this process takes of the memory of "cuda:N" for tensors and captured steps; an
// allocation beyond it finds the device full. Before its first work. Does nothing for "cpu".
void BoundMemory(std::string_view device, double bytes);

// Gives memory that nothing uses back to the device, and to all others with CUDA. Waits for work of
// the device, and the next batches ask for memory anew: not while requests are served. Does nothing
// for "cpu".
void GiveBackMemory(std::string_view device);

// The same of a CUDA device. Defined in the file that is linked; without CUDA 0, and nothing.
int64_t CudaMemoryInUse(int index);
// Opens the device. Does nothing where its memory cannot be asked.
void CudaBoundMemory(int index, double bytes);
void CudaGiveBackMemory();

}  // namespace hyperserve
