// Time as a dependency, so that deadlines and delays can be tested without sleeping.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace hyperserve {

class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  // Waits on `changed` until it is notified or this clock reads `until`. May return early: callers
  // look again.
  virtual void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                         TimePoint until) const;
  static const Clock& Real();
};

}  // namespace hyperserve
