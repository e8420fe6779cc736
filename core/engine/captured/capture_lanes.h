// The lanes of a device, in which captured work runs: each has a stream, and memory for what is
// between the ends of its works. One run at a time uses a lane, so as many runs as there are lanes
// use captured work at once, whatever it is.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/engine/captured/captured_work.h"
#include "core/engine/devices.h"
#include "core/engine/torch_scope.h"

namespace hyperserve {

// Runs that use captured work at once: as many as a GPU has solvers.
inline constexpr size_t kGraphLanes = 2;

// Thread-safe; must outlive its leases.
class CaptureLanes {
 public:
  // `capture` makes what captures in one lane, on a stream of its own: CudaCaptureLane, or a
  // test's. A captured kernel keeps the priority of the stream on which it was captured.
  using MakeCapture = std::function<std::unique_ptr<CaptureLane>(const c10::Stream&)>;
  CaptureLanes(at::Device device, StreamPriority priority, const MakeCapture& capture);

  at::Device device() const { return device_; }
  // Where the works of a lane run and their places are.
  c10::Stream stream(size_t lane) const { return lanes_[lane].stream; }

  // A lane for one run alone.
  struct Lease {
    size_t lane = 0;
    StreamLease stream;  // the lane is free again when the last copy has gone
  };
  // nullopt: every lane is taken.
  std::optional<Lease> Take();

  // Captures in a lane; serving goes on meanwhile, and captures in other lanes. Blocks while
  // another work is captured in this one.
  std::unique_ptr<CapturedWork> Capture(size_t lane, const std::function<void()>& work) const {
    const std::lock_guard lock(capturing_[lane]);
    return lanes_[lane].captures->Capture(work);
  }

 private:
  struct Lane {
    c10::Stream stream;
    std::unique_ptr<CaptureLane> captures;
  };

  const at::Device device_;
  std::vector<Lane> lanes_;  // fixed after construction
  mutable std::array<std::mutex, kGraphLanes> capturing_;
  std::mutex mutex_;
  std::array<bool, kGraphLanes> taken_ = {};  // guarded by mutex_
};

}  // namespace hyperserve
