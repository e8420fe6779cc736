#include "client/retry.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace hyperserve {

std::optional<std::chrono::milliseconds> DecideRetry(const RetryPolicy& policy,
                                                     const FailedAttempt& failed,
                                                     std::chrono::milliseconds time_left,
                                                     double jitter) {
  if (failed.attempts >= policy.attempts_max) return std::nullopt;
  std::chrono::milliseconds delay{0};
  if (failed.code == absl::StatusCode::kUnavailable && failed.repeatable) {
    const int doublings = std::min(failed.attempts - 1, 20);
    const auto longest = std::min(policy.delay_first * (int64_t{1} << doublings), policy.delay_max);
    delay = std::chrono::milliseconds(static_cast<int64_t>(longest.count() * (0.5 + jitter / 2)));
  } else if (failed.code == absl::StatusCode::kResourceExhausted && failed.pushback) {
    delay = *failed.pushback +
            std::chrono::milliseconds(static_cast<int64_t>(failed.pushback->count() * jitter / 2));
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
