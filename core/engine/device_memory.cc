#include "core/engine/device_memory.h"

#include <charconv>
#include <fstream>
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

}  // namespace

int64_t MemoryInUse(std::string_view device) {
  constexpr std::string_view kCuda = "cuda:";
  if (!device.starts_with(kCuda)) return MachineMemoryInUse();
  int index = 0;
  std::from_chars(device.data() + kCuda.size(), device.data() + device.size(), index);
  return CudaMemoryInUse(index);
}

}  // namespace hyperserve
