#include "server/batching/batch_policy.h"

#include <gtest/gtest.h>

#include "server/batching/batcher_options.h"
#include "server/clock/clock.h"
#include "tests/server/batching/batcher_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::microseconds;

constexpr Clock::TimePoint kNow{std::chrono::seconds(100)};

Load LoadOf(int64_t rows, double evaluations) {
  return {.rows = rows, .evaluations_least = evaluations, .evaluations_most = evaluations};
}

QueueSnapshot Waiting(uint64_t key, const Load& load) {
  return {.key = key,
          .oldest = kNow,
          .start_by = Clock::TimePoint::max(),
          .shortest = {.load = load},
          .first_come = {.load = load}};
}

// A run that has as much work as its load says.
RunSnapshot Running(uint64_t key, const Load& load) {
  const double work = load.evaluations_least * static_cast<double>(load.rows);
  return {.key = key, .load = load, .work = work, .work_to_end = work};
}

class DecideBatchTest : public testing::Test {
 protected:
  BatchDecision Decide() const {
    return DecideBatch({.runs = runs_,
                        .queues = queues_,
                        .taken = taken_,
                        .now = kNow,
                        .intake = intake_,
                        .turn = turn_},
                       options_);
  }

  BatcherOptions options_ =
      TestOptions{.queue_delay_max = microseconds(2000), .live_runs_max = 4}.options();
  std::vector<RunSnapshot> runs_;
  std::vector<QueueSnapshot> queues_;
  PlacesTaken taken_;
  Intake intake_ = Intake::kOpen;
  uint64_t turn_ = 1;
};

TEST_F(DecideBatchTest, NothingWaits) { EXPECT_EQ(Decide(), BatchDecision{}); }

TEST_F(DecideBatchTest, ASolverWithoutARunFindsEveryQueueReady) {
  queues_ = {Waiting(1, LoadOf(1, 9)), Waiting(2, LoadOf(1, 8))};
  EXPECT_EQ(Decide().start, 1u);
}

TEST_F(DecideBatchTest, WhileAllAreBusyAQueueWaitsForCompany) {
  runs_ = {Running(1, LoadOf(1, 100))};
  queues_ = {Waiting(2, LoadOf(1, 1))};
  EXPECT_EQ(Decide().run, 0u);
  queues_[0].oldest = kNow - microseconds(2000) + std::chrono::nanoseconds(1);
  EXPECT_EQ(Decide().run, 0u);
}

TEST_F(DecideBatchTest, ButNotWhenItIsFullOrOverdueOrHurriedOrDraining) {
  runs_ = {Running(1, LoadOf(1, 100))};
  const QueueSnapshot waiting = Waiting(2, LoadOf(1, 1));
  queues_ = {waiting};
  queues_[0].full = true;
  EXPECT_EQ(Decide().start, 0u);
  queues_ = {waiting};
  queues_[0].oldest = kNow - microseconds(2000);
  EXPECT_EQ(Decide().start, 0u);
  queues_ = {waiting};
  queues_[0].start_by = kNow;
  EXPECT_EQ(Decide().start, 0u);
  queues_ = {waiting};
  intake_ = Intake::kDraining;
  EXPECT_EQ(Decide().start, 0u);
}

TEST_F(DecideBatchTest, LeastWorkUntilTheNextRowFinishesGoesFirst) {
  options_.queue_delay_max = microseconds(0);
  runs_ = {Running(1, LoadOf(4, 10)), Running(2, LoadOf(8, 4)), Running(3, LoadOf(1, 90))};
  EXPECT_EQ(Decide().run, 1u);
  queues_ = {Waiting(4, LoadOf(31, 1))};
  EXPECT_EQ(Decide().start, 0u);
  queues_ = {Waiting(4, LoadOf(33, 1))};
  EXPECT_EQ(Decide().run, 1u);
}

TEST_F(DecideBatchTest, WhoWasServedLeastGoesBeforeAllElse) {
  options_.queue_delay_max = microseconds(0);
  runs_ = {Running(1, LoadOf(1, 1)), Running(2, LoadOf(1, 90))};
  runs_[0].lead = 3;
  runs_[1].lead = 1;
  EXPECT_EQ(Decide().run, 1u);
  queues_ = {Waiting(3, LoadOf(1, 900)), Waiting(4, LoadOf(1, 1))};
  queues_[1].lead = 1;
  EXPECT_EQ(Decide().start, 0u);
  turn_ = 1000;  // those that were passed over go no earlier than their client
  queues_[0].came = 1000;
  EXPECT_EQ(Decide().start, 0u);
}

TEST_F(DecideBatchTest, AnEvaluationCostsSomethingBesideItsRows) {
  options_.evaluation_macs_fixed = 100;
  queues_ = {Waiting(1, LoadOf(50, 1)), Waiting(2, LoadOf(1, 2))};
  EXPECT_EQ(Decide().start, 0u);
}

TEST_F(DecideBatchTest, EqualWorkGoesByTheTurnAndThenByTheTimeOfArrival) {
  queues_ = {Waiting(1, LoadOf(1, 1)), Waiting(2, LoadOf(1, 1)), Waiting(3, LoadOf(1, 1))};
  queues_[0].came = 1;
  queues_[1].oldest = kNow - microseconds(1);
  queues_[2].oldest = kNow - microseconds(2);
  EXPECT_EQ(Decide().start, 2u);
}

TEST_F(DecideBatchTest, WhatWasPassedOverLongEnoughGoesFirst) {
  options_.queue_delay_max = microseconds(0);
  runs_ = {Running(1, LoadOf(8, 1000)), Running(2, LoadOf(8, 900))};
  runs_[0].served = 10;
  runs_[1].served = 11;
  queues_ = {Waiting(3, LoadOf(1, 1))};
  queues_[0].came = 50;
  turn_ = 10 + 8 * 3;
  EXPECT_EQ(Decide().start, 0u);
  ++turn_;
  EXPECT_EQ(Decide().run, 0u);
}

TEST_F(DecideBatchTest, OfAQueueThatWasPassedOverTheFirstThatCameGoesFirst) {
  options_.queue_delay_max = microseconds(0);
  queues_ = {Waiting(3, LoadOf(1, 1))};
  queues_[0].first_come.load = LoadOf(1, 1000);
  turn_ = 8;
  EXPECT_EQ(Decide().pick, Pick::kShortest);
  turn_ = 9;
  EXPECT_EQ(Decide().pick, Pick::kFirstCome);
}

TEST_F(DecideBatchTest, RowsJoinARunOfTheirKeyThatHasRoom) {
  options_.queue_delay_max = microseconds(0);
  runs_ = {Running(1, LoadOf(9, 10)), Running(2, LoadOf(9, 10)), Running(2, LoadOf(9, 10))};
  runs_[2].room = 2;
  queues_ = {Waiting(2, LoadOf(2, 10))};
  EXPECT_EQ(Decide().run, 2u);
  queues_ = {Waiting(2, LoadOf(3, 10))};
  EXPECT_EQ(Decide().start, 0u);
  queues_ = {Waiting(2, LoadOf(2, 10))};
  queues_[0].shortest.alone = true;
  EXPECT_EQ(Decide().start, 0u);
}

TEST_F(DecideBatchTest, HalfOfThePlacesAreForBriefWork) {
  options_.queue_delay_max = microseconds(0);
  runs_ = {Running(1, LoadOf(1, 900)), Running(1, LoadOf(1, 600))};
  queues_ = {Waiting(2, LoadOf(1, 301))};
  EXPECT_EQ(Decide(), (BatchDecision{.start = 0, .place = Place::kAny}));
  taken_ = {.any = 2, .brief = 0};
  EXPECT_EQ(Decide().run, 1u);
  queues_ = {Waiting(2, LoadOf(1, 300))};
  EXPECT_EQ(Decide(), (BatchDecision{.start = 0, .place = Place::kBrief}));
  taken_ = {.any = 2, .brief = 1};
  EXPECT_EQ(Decide().run, 1u);
  queues_ = {Waiting(2, LoadOf(1, 100))};
  EXPECT_EQ(Decide(), (BatchDecision{.start = 0, .place = Place::kBrief}));
  taken_ = {.any = 2, .brief = 2};
  EXPECT_EQ(Decide().run, 1u);
  taken_ = {.any = 1, .brief = 2};
  EXPECT_EQ(Decide(), (BatchDecision{.start = 0, .place = Place::kAny}));
}

TEST_F(DecideBatchTest, FirstOfAQueueThatWasPassedOverTakesAnyRoomOfItsKey) {
  runs_ = {Running(1, LoadOf(1, 2)), Running(2, LoadOf(1, 2))};
  runs_[0].served = runs_[1].served = 30;
  runs_[0].room = runs_[1].room = 3;
  queues_ = {Waiting(2, LoadOf(3, 1000))};
  queues_[0].full = true;
  taken_ = {.any = 2, .brief = 2};
  turn_ = 24;
  EXPECT_EQ(Decide(), BatchDecision{.run = 0});
  ++turn_;
  EXPECT_EQ(
      Decide(),
      (BatchDecision{.run = 1, .joining = Joining::kFirstAndCompany, .pick = Pick::kFirstCome}));
}

TEST_F(DecideBatchTest, AQueueThatWasPassedOverClosesARunUntilItIsServed) {
  runs_ = {Running(1, LoadOf(1, 2)), Running(2, LoadOf(1, 5)), Running(2, LoadOf(1, 9))};
  for (RunSnapshot& run : runs_) run.served = 40;
  runs_[0].room = 9;
  queues_ = {Waiting(2, LoadOf(3, 1000))};
  queues_[0].full = true;
  taken_ = {.any = 2, .brief = 2};
  turn_ = 33;
  EXPECT_EQ(Decide(), BatchDecision{.run = 0});
  runs_[0].work = 6;  // the shorter one of its key is served now, and closed
  EXPECT_EQ(Decide(), (BatchDecision{.run = 1, .joining = Joining::kNobody}));
  queues_[0].key = 3;  // without a run of its key it waits for the one nearest its end
  EXPECT_EQ(Decide(), BatchDecision{.run = 1});
  runs_[0].work = 2;
  EXPECT_EQ(Decide(), (BatchDecision{.run = 0, .joining = Joining::kNobody}));
}

TEST(ShareARun, WhereNeitherIsMuchShorter) {
  const BatcherOptions options = TestOptions{}.options();
  EXPECT_TRUE(ShareARun(LoadOf(8, 10), LoadOf(8, 20), options));
  EXPECT_FALSE(ShareARun(LoadOf(8, 9), LoadOf(8, 20), options));
  EXPECT_TRUE(ShareARun(LoadOf(8, 40), LoadOf(8, 20), options));
  EXPECT_FALSE(ShareARun(LoadOf(8, 41), LoadOf(8, 20), options));
  const Load mixed{.rows = 8, .evaluations_least = 10, .evaluations_most = 30};
  EXPECT_FALSE(ShareARun(LoadOf(8, 14), mixed, options));
  EXPECT_TRUE(ShareARun(LoadOf(8, 15), mixed, options));
  EXPECT_FALSE(ShareARun(LoadOf(8, 21), mixed, options));
}

TEST(ShareARun, OrWhereThoseThatJoinCostLittle) {
  const BatcherOptions options = TestOptions{.evaluation_macs_fixed = 100}.options();
  EXPECT_TRUE(ShareARun(LoadOf(24, 1), LoadOf(200, 100), options));
  EXPECT_FALSE(ShareARun(LoadOf(25, 1), LoadOf(200, 100), options));
  EXPECT_TRUE(ShareARun(LoadOf(24, 100), LoadOf(1, 1), options));
}

}  // namespace
}  // namespace hyperserve
