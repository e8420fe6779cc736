// What a test does to a GPU. For builds with CUDA.
#pragma once

#include <cstdint>

namespace hyperserve::fixture {

// Takes the memory of the current device that is free, but for `left` bytes. Null: it failed.
void* TakeDeviceMemory(int64_t left);
void GiveDeviceMemory(void* memory);
// Runs a kernel that traps: no later call of this process reaches the device.
void TrapDevice();

}  // namespace hyperserve::fixture
