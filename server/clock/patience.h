// How long a caller waits for an answer: its deadline and its cancellation.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "server/clock/clock.h"

namespace hyperserve {

// A default-constructed Patience has no end. Copies share what `cancelled` refers to, and may be
// asked by several threads at once.
struct Patience {
  Clock::TimePoint deadline = Clock::TimePoint::max();
  // Has the caller given up? Thread-safe; once true, always true. Empty: the caller never does.
  std::function<bool()> cancelled;

  // OK while the caller waits, then kDeadlineExceeded or kCancelled. A cancellation within 20 ms
  // before the deadline counts as the deadline: a client cancels when its own clock says so.
  absl::Status Left(Clock::TimePoint now) const;
};

}  // namespace hyperserve
