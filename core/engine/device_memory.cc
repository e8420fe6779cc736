#include "core/engine/device_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>

namespace hyperserve {
namespace {

// What a new process could not have: MemTotal less MemAvailable of /proc/meminfo.
int64_t MachineMemoryInUse() {
  std::ifstream file("/proc/meminfo");
  int64_t all = 0, available = 0, kilobytes = 0;
  std::string name, rest;
  while (file >> name >> kilobytes && std::getline(file, rest)) {
    if (name == "MemTotal:") all = kilobytes;
    if (name == "MemAvailable:") available = kilobytes;
  }
  return (all - available) * 1024;
}

// nullopt: no CUDA device. "cuda" is the first.
std::optional<int> CudaIndex(std::string_view device) {
  constexpr std::string_view kCuda = "cuda";
  if (!device.starts_with(kCuda)) return std::nullopt;
  int index = 0;
  const size_t digits = std::min(kCuda.size() + 1, device.size());
  std::from_chars(device.data() + digits, device.data() + device.size(), index);
  return index;
}

}  // namespace

int64_t MemoryInUse(std::string_view device) {
  const std::optional<int> index = CudaIndex(device);
  return index ? CudaMemoryInUse(*index) : MachineMemoryInUse();
}

void BoundMemory(std::string_view device, double bytes) {
  if (const std::optional<int> index = CudaIndex(device)) CudaBoundMemory(*index, bytes);
}

void GiveBackMemory(std::string_view device) {
  if (CudaIndex(device)) CudaGiveBackMemory();
}

}  // namespace hyperserve
