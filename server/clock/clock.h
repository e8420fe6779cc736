// Time as a dependency, so that deadlines and delays can be tested without sleeping.
#pragma once

#include <chrono>

namespace hyperserve {

class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  static const Clock& Real();
};

}  // namespace hyperserve
