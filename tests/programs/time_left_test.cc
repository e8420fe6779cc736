// The time that work of several kinds has left.
#include "programs/time_left.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hyperserve {
namespace {

TEST(TimeLeftTest, NothingIsKnownBeforeTheFirstPiece) {
  TimeLeft left;
  EXPECT_TRUE(std::isnan(left.Seconds()));
  left.Expect(10, 1);
  EXPECT_TRUE(std::isnan(left.Seconds()));
}

TEST(TimeLeftTest, KindsCostWhatTheyCostAndThoseToComeWhatIsGuessed) {
  TimeLeft left;
  const size_t step = left.Expect(100, 1);
  const size_t check = left.Expect(10, 5);
  left.Note(step, 0.2);
  EXPECT_NEAR(left.Seconds(), 99 * 0.2 + 10 * 5 * 0.2, 1e-12);  // by the guess
  left.Note(check, 3);
  EXPECT_NEAR(left.Seconds(), 99 * 0.2 + 9 * 3, 1e-12);  // as measured
  left.Note(step, 0.4);
  EXPECT_NEAR(left.Seconds(), 98 * 0.3 + 9 * 3, 1e-12);
  EXPECT_NEAR(left.noted_seconds(), 3.6, 1e-12);
}

// A fit whose second half makes new true solutions: an estimate by the mean of the iterations so
// far would be wrong by a factor of 5 throughout its first half.
TEST(TimeLeftTest, HoldsWithinTwoWhereTheSecondHalfIsSlower) {
  TimeLeft left;
  const size_t step = left.Expect(200, 1), truth = left.Expect(1 + 100, 10);
  double rest = 200 * 0.01 + 101 * 0.09;
  const auto note = [&](size_t kind, double seconds) {
    left.Note(kind, seconds);
    rest -= seconds;
    if (rest < 0.05) return;
    EXPECT_LT(left.Seconds(), 2 * rest);
    EXPECT_GT(left.Seconds(), rest / 2);
  };
  note(truth, 0.09);
  for (int i = 0; i < 200; ++i) {
    if (i >= 100) note(truth, 0.09);
    note(step, 0.01);
  }
  EXPECT_NEAR(left.Seconds(), 0, 1e-12);
}

}  // namespace
}  // namespace hyperserve
