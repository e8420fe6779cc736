#include "server/clock/patience.h"

#include <chrono>

namespace hyperserve {
namespace {

// A client whose deadline passes cancels the call, perhaps before our own clock reaches the
// deadline. A cancellation this close to the deadline counts as the deadline.
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
