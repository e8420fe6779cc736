#include "client/retry.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace hyperserve {

namespace {

using std::chrono::milliseconds;

milliseconds Scaled(milliseconds delay, double factor) {
  return milliseconds(static_cast<int64_t>(static_cast<double>(delay.count()) * factor));
}

// The wait after `attempts` attempts, doubled from `first` up to delay_max; never below `first`.
milliseconds Grown(const RetryPolicy& policy, milliseconds first, int attempts) {
  const int doublings = std::min(attempts - 1, 20);
  return std::max(first, std::min(first * (int64_t{1} << doublings), policy.delay_max));
}

// Attempts with a server that says when to try again.
int PatienceWith(const RetryPolicy& policy, bool loading) {
  if (!loading) return policy.attempts_max_full.value_or(policy.attempts_max);
  return policy.attempts_max > 1 ? kUntilTheDeadline : 1;
}

}  // namespace

std::optional<milliseconds> DecideRetry(const RetryPolicy& policy, const FailedAttempt& failed,
                                        milliseconds time_left, double jitter) {
  milliseconds delay{0};
  const bool loading = failed.code == absl::StatusCode::kUnavailable && failed.pushback;
  if (failed.code == absl::StatusCode::kUnavailable && failed.repeatable && !loading) {
    if (failed.attempts >= policy.attempts_max) return std::nullopt;
    delay = Scaled(Grown(policy, policy.delay_first, failed.attempts), 0.5 + jitter / 2);
  } else if (loading || (failed.code == absl::StatusCode::kResourceExhausted && failed.pushback)) {
    if (failed.attempts >= PatienceWith(policy, loading)) return std::nullopt;
    // A pushback of 0 must grow as well, so that a full server is not called without a pause.
    const milliseconds first = std::max(*failed.pushback, milliseconds(1));
    delay = Scaled(Grown(policy, first, failed.attempts), 1 + jitter / 2);
  } else {
    return std::nullopt;
  }
  if (delay >= time_left) return std::nullopt;
  return delay;
}

std::optional<std::chrono::milliseconds> ParsePushback(std::string_view value) {
  int32_t milliseconds = 0;
  const auto [end, error] =
      std::from_chars(value.data(), value.data() + value.size(), milliseconds);
  if (error != std::errc() || end != value.data() + value.size() || milliseconds < 0) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(milliseconds);
}

}  // namespace hyperserve
