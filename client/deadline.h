// When a call must have ended.
#pragma once

#include <chrono>

namespace hyperserve {

// Retries and waiting included. There is no call without one.
struct Deadline {
  std::chrono::system_clock::time_point at;

  static Deadline In(std::chrono::nanoseconds time) {
    return {std::chrono::system_clock::now() +
            std::chrono::duration_cast<std::chrono::system_clock::duration>(time)};
  }
};

}  // namespace hyperserve
