// The devices of this machine, and the numeric settings that a process makes once before it uses
// one. No type of LibTorch crosses this header.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hyperserve {

// What people read of a device, and what budgets of memory start from. The memory of the CPU is
// that of the machine, also within a container that may have less.
struct DeviceInfo {
  std::string name;          // "cpu", "cuda:0"
  std::string description;   // "NVIDIA H100 80GB HBM3", or the CPU's model name
  int64_t memory_bytes = 0;  // in all; 0: unknown
};
// The CPU first, then the CUDA devices in their order; without a driver the CPU only. Never fails.
// Reads the system and asks the driver anew at every call. Any thread.
std::vector<DeviceInfo> ListDevices();

// Makes results reproducible: sets MKL_CBWR, turns TF32 off and deterministic algorithms on. Lets
// the allocator keep the memory of an evaluation for the next one. Call it once, at the start of
// main, before the first tensor and the first thread.
void SetUpNumerics();

// Whose work a GPU takes up first where it has more than it can do at once: of one process, and of
// several only where MPS lets them use it together. A trainer has the least, a daemon the greatest.
enum class StreamPriority { kLeast, kGreatest };

}  // namespace hyperserve
