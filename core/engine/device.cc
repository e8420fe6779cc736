#include "core/engine/device.h"

#include <malloc.h>
#include <sys/sysinfo.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr char kCpu[] = "cpu";

// Freed memory that the allocator keeps, and the size from which a block is a mapping of its own.
// Its defaults (128 KiB) give the tensors of one evaluation back to the system and fault them in
// again at the next.
constexpr int kMemoryKept = 128 << 20;   // bytes, of each arena
constexpr int kMappingBytes = 32 << 20;  // the most that glibc takes

// "model name : ..." of /proc/cpuinfo.
std::string CpuDescription() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown CPU";
}

int64_t MemoryBytes() {
  struct sysinfo info = {};
  return sysinfo(&info) == 0 ? static_cast<int64_t>(info.totalram) * info.mem_unit : 0;
}

}  // namespace

std::vector<DeviceInfo> ListDevices() {
  std::vector<DeviceInfo> devices = {
      {.name = kCpu, .description = CpuDescription(), .memory_bytes = MemoryBytes()}};
  for (DeviceInfo& device : CudaDevices()) devices.push_back(std::move(device));
  return devices;
}

absl::StatusOr<at::Device> FindDevice(std::string_view name) {
  const std::string wanted = name == "cuda" ? "cuda:0" : std::string(name);
  std::string known;
  for (const DeviceInfo& device : ListDevices()) {
    if (device.name == wanted) return at::Device(wanted);
    absl::StrAppend(&known, known.empty() ? "" : ", ", device.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no device '", wanted, "' here; there is ", known));
}

void SetUpNumerics() {
  mallopt(M_TRIM_THRESHOLD, kMemoryKept);
  mallopt(M_MMAP_THRESHOLD, kMappingBytes);
  // The same kernels for every size and alignment. MKL reads it at its first matrix product.
  setenv("MKL_CBWR", "AVX2,STRICT", /*overwrite=*/1);
  // LibTorch gives each handle and stream of cuBLAS a workspace of its own, which makes it
  // deterministic. The variable would not change that, but LibTorch reads it with a regular
  // expression before every product, which takes 100 us.
  unsetenv("CUBLAS_WORKSPACE_CONFIG");
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  context.setBenchmarkCuDNN(false);
  context.setDeterministicCuDNN(true);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Nothing of ours reads uninitialized memory; filling it would only cost time.
  context.setDeterministicFillUninitializedMemory(false);
}

}  // namespace hyperserve
