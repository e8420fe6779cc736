#include "client/retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

constexpr RetryPolicy kPolicy{.attempts_max = 4,
                              .attempts_max_full = 6,
                              .delay_first = milliseconds(100),
                              .delay_max = milliseconds(250)};
constexpr milliseconds kLong{60000};
constexpr double kFullDelay = 1.0;  // own delays unscaled

std::optional<milliseconds> Decide(const FailedAttempt& failed, milliseconds time_left = kLong,
                                   double jitter = kFullDelay) {
  return DecideRetry(kPolicy, failed, time_left, jitter);
}

TEST(DecideRetry, UnavailableOnlyWhereNothingWasSent) {
  FailedAttempt failed{.code = absl::StatusCode::kUnavailable, .repeatable = true};
  EXPECT_EQ(Decide(failed), milliseconds(100));
  failed.repeatable = false;
  EXPECT_EQ(Decide(failed), std::nullopt);
}

TEST(DecideRetry, AServerThatLoadsIsWaitedFor) {
  FailedAttempt failed{.code = absl::StatusCode::kUnavailable, .pushback = milliseconds(50)};
  EXPECT_EQ(Decide(failed, kLong, 0.0), milliseconds(50));
  failed.attempts = 1000000;
  EXPECT_EQ(Decide(failed, kLong, 0.0), milliseconds(250));
  failed.repeatable = true;  // the missing rows of a stream
  EXPECT_EQ(Decide(failed, kLong, 0.0), milliseconds(250));
  EXPECT_EQ(Decide(failed, milliseconds(250), 0.0), std::nullopt);
  failed.attempts = 1;
  EXPECT_EQ(DecideRetry({.attempts_max = 1}, failed, kLong, 0.0), std::nullopt);
}

TEST(DecideRetry, ResourceExhaustedOnlyWithPushback) {
  FailedAttempt failed{.code = absl::StatusCode::kResourceExhausted, .repeatable = true};
  EXPECT_EQ(Decide(failed), std::nullopt);
  failed.repeatable = false;
  EXPECT_EQ(Decide(failed), std::nullopt);
  failed.pushback = milliseconds(40);
  EXPECT_EQ(Decide(failed, kLong, 0.0), milliseconds(40));
  EXPECT_EQ(Decide(failed, kLong, 0.5), milliseconds(50))
      << "lengthened by jitter, never shortened";
}

TEST(DecideRetry, PushbacksGrowUpToTheLimitAndAttemptsEnd) {
  FailedAttempt failed{.code = absl::StatusCode::kResourceExhausted, .pushback = milliseconds(50)};
  std::vector<milliseconds> waits;
  for (failed.attempts = 1; const auto wait = Decide(failed, kLong, 0.0); ++failed.attempts) {
    waits.push_back(*wait);
  }
  EXPECT_THAT(waits, ElementsAre(milliseconds(50), milliseconds(100), milliseconds(200),
                                 milliseconds(250), milliseconds(250)));
  failed = {.code = failed.code, .pushback = milliseconds(900), .attempts = 3};
  EXPECT_EQ(Decide(failed, kLong, 0.0), milliseconds(900)) << "what the server says is the least";
}

TEST(DecideRetry, APushbackOfNothingGrowsAsWell) {
  FailedAttempt failed{.code = absl::StatusCode::kResourceExhausted, .pushback = milliseconds(0)};
  EXPECT_EQ(Decide(failed, kLong, 0.0), milliseconds(1));
  failed.attempts = 5;
  EXPECT_EQ(Decide(failed, kLong, 0.0), milliseconds(16));
}

TEST(DecideRetry, OnlyTheDeadlineEndsWaitingWhereThatIsWanted) {
  const RetryPolicy policy{.attempts_max_full = kUntilTheDeadline};
  FailedAttempt failed{.code = absl::StatusCode::kResourceExhausted,
                       .pushback = milliseconds(50),
                       .attempts = 1000000};
  EXPECT_EQ(DecideRetry(policy, failed, kLong, 0.0), milliseconds(1000));
  EXPECT_EQ(DecideRetry(policy, failed, milliseconds(1000), 0.0), std::nullopt);
  failed = {.code = absl::StatusCode::kUnavailable, .repeatable = true, .attempts = 5};
  EXPECT_EQ(DecideRetry(policy, failed, kLong, 0.0), std::nullopt)
      << "that nobody is there is said soon";
  failed = {.code = absl::StatusCode::kResourceExhausted, .pushback = milliseconds(50)};
  EXPECT_EQ(DecideRetry({.attempts_max = 1}, failed, kLong, 0.0), std::nullopt) << "for both";
}

TEST(DecideRetry, NoOtherCodeEver) {
  for (int code = 0; code <= 16; ++code) {
    const auto status_code = static_cast<absl::StatusCode>(code);
    if (status_code == absl::StatusCode::kUnavailable ||
        status_code == absl::StatusCode::kResourceExhausted) {
      continue;
    }
    EXPECT_EQ(Decide({.code = status_code, .repeatable = true, .pushback = milliseconds(1)}),
              std::nullopt)
        << code;
  }
}

TEST(DecideRetry, DelaysDoubleUpToTheLimitAndAttemptsEnd) {
  FailedAttempt failed{.code = absl::StatusCode::kUnavailable, .repeatable = true};
  failed.attempts = 2;
  EXPECT_EQ(Decide(failed), milliseconds(200));
  failed.attempts = 3;
  EXPECT_EQ(Decide(failed), milliseconds(250));
  EXPECT_EQ(Decide(failed, kLong, 0.0), milliseconds(125)) << "half the delay without jitter";
  failed.attempts = 4;
  EXPECT_EQ(Decide(failed), std::nullopt);
}

TEST(DecideRetry, NeverWaitsPastTheDeadline) {
  const FailedAttempt failed{.code = absl::StatusCode::kResourceExhausted,
                             .pushback = milliseconds(40)};
  EXPECT_EQ(Decide(failed, milliseconds(41), 0.0), milliseconds(40));
  EXPECT_EQ(Decide(failed, milliseconds(40), 0.0), std::nullopt);
  EXPECT_EQ(Decide(failed, milliseconds(-1), 0.0), std::nullopt);
}

TEST(ParsePushback, NumbersOnly) {
  EXPECT_EQ(ParsePushback("25"), milliseconds(25));
  EXPECT_EQ(ParsePushback("0"), milliseconds(0));
  for (const char* wrong : {"-1", "", "soon", "12ms", "1e3", "99999999999"}) {
    EXPECT_EQ(ParsePushback(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace hyperserve
