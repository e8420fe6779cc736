// Time as a dependency, so that tests of deadlines and delays need no sleep.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace hyperserve {

// Thread-safe. Time never goes back.
class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  // Never fails and never waits.
  virtual TimePoint Now() const = 0;
  // Waits until `changed` is notified or this clock reads `until`. May return early, so a caller
  // checks its condition and the time again. `lock` is held on entry and on return.
  virtual void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                         TimePoint until) const;
  // The steady clock of the system; lives as long as the process.
  static const Clock& Real();
};

}  // namespace hyperserve
