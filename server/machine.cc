#include "server/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "server/net/descriptors.h"

namespace hyperserve {
namespace {

// The limits of the container, of both versions of control groups. "max" is no number: no limit.
constexpr const char* kMemoryLimits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};

double MemoryBytes() {
  double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  for (const char* file : kMemoryLimits) {
    double limit = 0;
    if (std::ifstream(file) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace

Machine MachineWith(const std::vector<DeviceInfo>& devices) {
  std::vector<std::string> gpus;
  double smallest = 0;
  for (const DeviceInfo& device : devices) {
    if (!device.name.starts_with("cuda:")) continue;
    const auto bytes = static_cast<double>(device.memory_bytes);
    smallest = gpus.empty() ? bytes : std::min(smallest, bytes);
    gpus.push_back(device.name);
  }
  return {.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
          .gpus = std::move(gpus),
          .descriptors = RaiseDescriptorLimit(),
          .memory_bytes = MemoryBytes(),
          .gpu_memory_bytes = smallest};
}

}  // namespace hyperserve
