// The time that work of several kinds has left.
#include "programs/time_left.h"

#include <gtest/gtest.h>

#include <cmath>

#include "programs/progress.h"
#include "programs/time_after.h"

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

TEST(TimeLeftTest, APartThatItsTimeWillEndTakesNoLonger) {
  TimeLeft left(TimeLeft::Costs::kSeconds);
  const size_t step = left.Expect(100, 1);
  left.Limit(step, 20);
  EXPECT_NEAR(left.Seconds(), 20, 1e-12);
  left.Note(step, 2);
  EXPECT_NEAR(left.Seconds(), 18, 1e-12);
  left.Skip(step, 95);
  EXPECT_NEAR(left.Seconds(), 8, 1e-12) << "4 pieces of 2 seconds";
  left.Limit(step, 5);
  EXPECT_NEAR(left.Seconds(), 5, 1e-12);
  left.Note(step, 9);
  EXPECT_NEAR(left.Seconds(), 0, 1e-12);
}

// A piece that is being done tells its own time, as a progress of its own does.
TEST(TimeLeftTest, APieceThatRunsIsNotAmongThoseToCome) {
  TimeLeft left(TimeLeft::Costs::kSeconds);
  const size_t one = left.Expect(3, 7);
  EXPECT_NEAR(left.Seconds(), 21, 1e-12) << "known at once, where costs are seconds";
  left.Timed(one, [&] {
    EXPECT_NEAR(left.Seconds(), 14, 1e-12);
    return 0;
  });
}

TEST(TimeAfterTest, LinesTellTheTimeOfTheWhole) {
  EXPECT_EQ(WholeTimeLeft(5), 5) << "nothing follows";
  TimeAfter after;
  EXPECT_TRUE(std::isnan(WholeTimeLeft(5))) << "something follows, nobody knows how long";
  after.Set(30);
  EXPECT_EQ(WholeTimeLeft(5), 35);
  {
    TimeAfter rest;  // a part of a part
    double left = 10;
    rest.Set([&] { return left; });
    EXPECT_EQ(WholeTimeLeft(5), 45);
    left = 8;
    EXPECT_EQ(WholeTimeLeft(5), 43);
  }
  EXPECT_EQ(WholeTimeLeft(5), 35);
  EXPECT_EQ(LeftText(5, WholeTimeLeft(5)), "  35 s left");
  after.Set(kTimeUnknown);
  EXPECT_EQ(LeftText(5, WholeTimeLeft(5)), "  5 s left of this part");
  EXPECT_EQ(LeftText(kTimeUnknown, kTimeUnknown), "");
}

// Wherever a time is told, it is within a factor of two, though the rough one errs by four.
TEST(TimeAfterTest, ARoughTimeIsToldWhereTheWholeHoldsWithinTwo) {
  TimeAfter after;
  bool told = false, kept_back = false;
  for (const double rough : {1.0, 4.0, 10.0, 40.0, 1000.0}) {
    after.SetRough(rough);
    const double whole = WholeTimeLeft(20);
    told = told || !std::isnan(whole);
    kept_back = kept_back || std::isnan(whole);
    for (const double truth : {20 + rough / 4, 20 + 4 * rough}) {
      if (std::isnan(whole)) continue;
      EXPECT_LE(whole, 2 * truth);
      EXPECT_GE(whole, truth / 2);
    }
  }
  EXPECT_TRUE(told);
  EXPECT_TRUE(kept_back);
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
