#include "core/engine/captured/capture_lanes.h"

namespace hyperserve {

CaptureLanes::CaptureLanes(at::Device device, StreamPriority priority, const MakeCapture& capture)
    : device_(device) {
  for (size_t i = 0; i < kGraphLanes; ++i) {
    const c10::Stream stream = NextStream(device, priority);
    lanes_.push_back({.stream = stream, .captures = capture(NextStream(device, priority))});
  }
}

std::optional<CaptureLanes::Lease> CaptureLanes::Take() {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (taken_[i]) continue;
    taken_[i] = true;
    const auto give_back = [this, i](const c10::Stream* stream) {
      const std::lock_guard lock(mutex_);
      taken_[i] = false;
      delete stream;
    };
    return Lease{.lane = i, .stream = StreamLease(new c10::Stream(lanes_[i].stream), give_back)};
  }
  return std::nullopt;
}

}  // namespace hyperserve
