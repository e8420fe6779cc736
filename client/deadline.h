// The deadline of a call. Plain data.
#pragma once

#include <chrono>

namespace hyperserve {

// The time at which a call must have ended, retries and waiting included. Every call has one.
struct Deadline {
  std::chrono::system_clock::time_point at;

  // So long after now; a time of 0 or less has passed already, and the call fails at once.
  static Deadline In(std::chrono::nanoseconds time) {
    return {std::chrono::system_clock::now() +
            std::chrono::duration_cast<std::chrono::system_clock::duration>(time)};
  }
};

}  // namespace hyperserve
