// How long somebody waits for an answer.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "server/clock/clock.h"

namespace hyperserve {

struct Patience {
  Clock::TimePoint deadline = Clock::TimePoint::max();
  std::function<bool()> cancelled;  // thread-safe; may be empty

  // OK while they wait; kDeadlineExceeded or kCancelled from then on.
  absl::Status Left(Clock::TimePoint now) const;
};

}  // namespace hyperserve
