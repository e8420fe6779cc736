#include "training/fit/schedule.h"

#include <gtest/gtest.h>

namespace hyperserve {
namespace {

constexpr Schedule kSchedule{.peak = 1.0, .last = 0.1, .iterations = 101, .warm_up = 20};

TEST(ScheduleTest, RisesToThePeakThenFallsToTheLast) {
  EXPECT_NEAR(kSchedule.RateAt(0), 1.0 / 21, 1e-12);
  EXPECT_NEAR(kSchedule.RateAt(19), 20.0 / 21, 1e-12);
  EXPECT_NEAR(kSchedule.RateAt(20), 1.0, 1e-12);
  EXPECT_NEAR(kSchedule.RateAt(60), 0.55, 1e-12);  // half way down
  EXPECT_NEAR(kSchedule.RateAt(100), 0.1, 1e-12);
  for (int i = 21; i < 101; ++i) EXPECT_LT(kSchedule.RateAt(i), kSchedule.RateAt(i - 1));
}

TEST(ScheduleTest, OneIterationRunsAtThePeak) {
  const Schedule one{.peak = 0.5, .last = 0.0, .iterations = 1, .warm_up = 0};
  EXPECT_DOUBLE_EQ(one.RateAt(0), 0.5);
}

}  // namespace
}  // namespace hyperserve
