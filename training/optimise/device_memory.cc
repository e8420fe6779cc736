#include "training/optimise/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "absl/strings/str_format.h"

namespace hyperserve {

std::string DeviceMemoryText(at::Device device) {
  if (device.is_cpu()) return "";
  const auto stats = c10::getDeviceAllocator(device.type())
                         ->getDeviceStats(device.has_index() ? device.index() : 0);
  const auto& bytes =
      stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  constexpr double kMebibyte = 1 << 20;
  return absl::StrFormat("GPU memory %.0f MiB, at most %.0f MiB",
                         static_cast<double>(bytes.current) / kMebibyte,
                         static_cast<double>(bytes.peak) / kMebibyte);
}

}  // namespace hyperserve
