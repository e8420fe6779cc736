// A clock that moves only when a test advances it. Thread-safe.
#pragma once

#include <atomic>

#include "server/clock/clock.h"

namespace hyperserve {

class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(std::chrono::nanoseconds(now_ns_.load())); }
  // Waits 1 ms of real time at most: the caller then reads the fake time again.
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                 TimePoint) const override {
    changed.wait_for(lock, std::chrono::milliseconds(1));
  }
  void Advance(std::chrono::nanoseconds by) { now_ns_ += by.count(); }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

}  // namespace hyperserve
