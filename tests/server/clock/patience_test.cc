#include "server/clock/patience.h"

#include <gtest/gtest.h>

#include "server/clock/clock.h"

namespace hyperserve {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;

const Clock::TimePoint kNow = Clock::TimePoint() + std::chrono::hours(1);

StatusCode Left(Clock::TimePoint deadline, bool cancelled) {
  const Patience patience = {.deadline = deadline, .cancelled = [=] { return cancelled; }};
  return patience.Left(kNow).code();
}

TEST(Patience, IsEndlessUnlessSaid) { EXPECT_TRUE(Patience().Left(kNow).ok()); }

TEST(Patience, EndsAtTheDeadline) {
  EXPECT_EQ(Left(kNow + milliseconds(1), false), StatusCode::kOk);
  EXPECT_EQ(Left(kNow, false), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Left(kNow - milliseconds(1), true), StatusCode::kDeadlineExceeded);
}

TEST(Patience, EndsWhereItIsCancelled) {
  EXPECT_EQ(Left(Clock::TimePoint::max(), true), StatusCode::kCancelled);
  EXPECT_EQ(Left(kNow + milliseconds(100), true), StatusCode::kCancelled);
  // The client's clock may be a little ahead of ours: the deadline was the reason.
  EXPECT_EQ(Left(kNow + milliseconds(5), true), StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace hyperserve
