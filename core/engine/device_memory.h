// How full the memory of a device is. No type of LibTorch crosses this header.
#pragma once

#include <cstdint>
#include <string_view>

namespace hyperserve {

// The bytes in use now of the memory of "cpu" or "cuda:N", by all processes; 0: unknown. The
// process must use the device already: a first use takes some of its memory. Waits for no work of
// the device. Any thread; never fails.
int64_t MemoryInUse(std::string_view device);

// The same of a CUDA device. Defined in the file that is linked; 0 without CUDA.
int64_t CudaMemoryInUse(int index);

}  // namespace hyperserve
