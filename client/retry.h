// When a call is tried again: a pure decision over what is known of the failed attempt.
//
// Tried again are exactly: UNAVAILABLE where nothing that was asked can be done twice (the request
// never left, or a stream goes on after its last row), and RESOURCE_EXHAUSTED where the server
// itself said when to come back (gRPC uses that code for oversized messages too, which never get
// smaller by waiting).
#pragma once

#include <chrono>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace hyperserve {

struct RetryPolicy {
  // Attempts that end in the same code, the first one counted; 1: never again.
  int attempts_max = 5;
  std::optional<int> attempts_max_full;       // where the server is full; nullopt: attempts_max
  std::chrono::milliseconds delay_first{50};  // doubled for each further attempt
  std::chrono::milliseconds delay_max{1000};
};

// The server says itself that it will have room: only the deadline ends the waiting for it.
inline constexpr int kUntilTheDeadline = std::numeric_limits<int>::max();

struct FailedAttempt {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  bool repeatable = false;  // nothing was sent, or only what has not arrived would be asked for
  std::optional<std::chrono::milliseconds> pushback;  // of the trailing metadata
  int attempts = 1;  // made so far that ended in `code`, without progress between them
};

// How long to wait before the next attempt; nullopt: give up and report the failure as it is. Never
// longer than `time_left`, which is what the deadline leaves. Waits grow from the policy's
// delay_first, or from the server's pushback, to delay_max. `jitter` in [0, 1) spreads clients that
// failed together: own delays are scaled by 1/2 + jitter/2, a pushback is never shortened.
std::optional<std::chrono::milliseconds> DecideRetry(const RetryPolicy& policy,
                                                     const FailedAttempt& failed,
                                                     std::chrono::milliseconds time_left,
                                                     double jitter);

// The value of `grpc-retry-pushback-ms`: nullopt for what is not a number or is negative, which by
// gRPC's rule mean "do not come back".
std::optional<std::chrono::milliseconds> ParsePushback(std::string_view value);

}  // namespace hyperserve
