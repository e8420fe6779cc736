#include "server/clock/patience.h"

#include <chrono>

namespace hyperserve {
namespace {

// A client whose deadline passes cancels the call, and its word may come before our own clock says
// so: a cancellation this close to the deadline is counted as what it is.
constexpr std::chrono::milliseconds kDeadlineSlack{20};

}  // namespace

absl::Status Patience::Left(Clock::TimePoint now) const {
  const bool gave_up = cancelled && cancelled();
  if (now >= deadline || (gave_up && now + kDeadlineSlack >= deadline)) {
    return absl::DeadlineExceededError("the deadline passed");
  }
  return gave_up ? absl::CancelledError("the client cancelled the call") : absl::OkStatus();
}

}  // namespace hyperserve
