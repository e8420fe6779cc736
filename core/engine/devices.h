// What devices there are, and what a process does once before it uses one. No LibTorch type crosses
// this header.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hyperserve {

struct DeviceInfo {
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // "NVIDIA H100 80GB HBM3", or the CPU's model name
  int64_t memory_bytes = 0;
};
std::vector<DeviceInfo> ListDevices();

// First lines of every main that uses an engine, before the first tensor: MKL_CBWR, TF32 off,
// deterministic algorithms.
void SetUpNumerics();

}  // namespace hyperserve
