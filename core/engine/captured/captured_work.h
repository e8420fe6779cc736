// Work of a device that was captured once and is started again and again, without a call for each
// kernel. The device's file (capture_cuda.cc) implements it by CUDA graphs.
#pragma once

#include <functional>
#include <memory>

namespace hyperserve {

// One at a time may be under way, with all others of its lane.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  // Starts the work on the current stream and does not wait for it; allocates nothing. Throws
  // c10::Error where the launch fails.
  virtual void Start() = 0;
};

// Captures works that share memory for what is between their ends. It must outlive them.
class CaptureLane {
 public:
  virtual ~CaptureLane() = default;
  // Runs `work` without executing it. What it reads and writes must stay where it is for as long as
  // the result is used; memory that it allocates and frees is the lane's. Other threads may use the
  // device meanwhile. Throws c10::Error where the work cannot be captured: it waits for the device,
  // or reads memory of the host.
  virtual std::unique_ptr<CapturedWork> Capture(const std::function<void()>& work) = 0;
};

}  // namespace hyperserve
