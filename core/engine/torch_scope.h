// What every run on LibTorch needs for its calls. Private to core/engine.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

#include "core/engine/devices.h"

namespace hyperserve {

// One of LibTorch's streams of that priority, in turn; on the CPU the default stream.
inline c10::Stream NextStream(at::Device device, StreamPriority priority) {
  if (!device.is_cuda()) return c10::Stream(c10::Stream::DEFAULT, device);
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device, priority == StreamPriority::kGreatest);
}

// A stream of the device for one run alone; on the CPU the default stream, which all runs share.
using StreamLease = std::shared_ptr<const c10::Stream>;

// The state of LibTorch within a call of a run: inference (no gradients, no versions of tensors),
// one thread, the run's stream.
struct TorchScope {
  explicit TorchScope(c10::Stream stream) : stream_guard(stream) {
    if (at::get_num_threads() != 1) at::set_num_threads(1);
  }
  c10::InferenceMode inference;
  c10::StreamGuard stream_guard;
};

// The same for a run that differentiates: operations may be recorded, where grad mode is switched
// on.
struct RecordingScope {
  explicit RecordingScope(c10::Stream stream) : stream_guard(stream) {
    if (at::get_num_threads() != 1) at::set_num_threads(1);
  }
  c10::InferenceMode ordinary{false};
  c10::AutoGradMode off{false};
  c10::StreamGuard stream_guard;
};

}  // namespace hyperserve
