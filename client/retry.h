// Decides whether a failed call is repeated: a pure function of the failed attempt.
//
// Two failures are repeated, and no other: UNAVAILABLE where the server cannot have done the work
// (the request was never sent, or a stream goes on after its last row, or the server loads its
// models and says when to try again), and RESOURCE_EXHAUSTED where the server says when to try
// again. gRPC also uses the second code for messages that are too large; the server sends no time
// for those, and they are not repeated.
#pragma once

#include <chrono>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace hyperserve {

// Plain data; the defaults are the library's.
struct RetryPolicy {
  // Attempts in a row that end in the same code, with the first one; 1: no repetition. Those that a
  // server refuses because it is loading do not count: more than 1 waits for it until the deadline.
  int attempts_max = 5;
  std::optional<int> attempts_max_full;       // for RESOURCE_EXHAUSTED; nullopt: attempts_max
  std::chrono::milliseconds delay_first{50};  // doubled for each further attempt
  std::chrono::milliseconds delay_max{1000};
};

// For attempts_max_full: repeat until the deadline, since a full server says when it will have
// room.
inline constexpr int kUntilTheDeadline = std::numeric_limits<int>::max();

// What is known of an attempt that failed. Nothing of the request itself.
struct FailedAttempt {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  bool repeatable = false;  // nothing was sent, or the next attempt asks for missing rows only
  std::optional<std::chrono::milliseconds> pushback;  // from the trailing metadata
  int attempts = 1;  // attempts in a row that ended in `code` without progress
};

// The wait before the next attempt; nullopt: report the failure. Always shorter than `time_left`,
// the time until the deadline. Waits double from the policy's delay_first, or from the server's
// pushback, up to delay_max. `jitter` in [0, 1) spreads clients that failed together: it scales
// delays by 1/2 + jitter/2, and a pushback, which is never shortened, by 1 + jitter/2.
std::optional<std::chrono::milliseconds> DecideRetry(const RetryPolicy& policy,
                                                     const FailedAttempt& failed,
                                                     std::chrono::milliseconds time_left,
                                                     double jitter);

// The value of `grpc-retry-pushback-ms`. nullopt for a negative value or a text that is no number;
// by gRPC's rule both mean "do not try again".
std::optional<std::chrono::milliseconds> ParsePushback(std::string_view value);

}  // namespace hyperserve
