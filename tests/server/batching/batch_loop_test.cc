// What a solver does next, evaluation by evaluation. One solver unless said otherwise; an
// evaluation of a row costs one MAC, and a step of Euler's method is one evaluation.
#include "server/batching/batch_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/plan/plan.h"
#include "server/batching/batcher_options.h"
#include "server/batching/work.h"
#include "tests/server/batching/batcher_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(BatchLoopTest, AnIdleSolverStartsAtOnce) {
  Start({.queue_delay_max = seconds(1)});
  Answer answer = Submit(MakeWork(3, 2, 100));
  EXPECT_TRUE(Step());
  EXPECT_TRUE(Step());
  EXPECT_FALSE(Step());
  ExpectRows(answer.get(), 3, 100);
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 3}, Seen{0, 3}));
}

TEST_F(BatchLoopTest, WaitsForCompanyWhileAllAreBusyAndNoLonger) {
  Start({.queue_delay_max = milliseconds(2)});
  Answer longer = Submit(MakeWork(4, 6));
  Steps(2);
  Answer answer = Submit(MakeOtherWork(1));
  Steps(2);
  clock_.Advance(milliseconds(2));
  StepToEnd();
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 4}, Seen{0, 4}, Seen{0, 4}, Seen{0, 4}, Seen{1, 1},
                                 Seen{0, 4}, Seen{0, 4}));
}

TEST_F(BatchLoopTest, ASolverThatBecomesIdleWaitsForNobody) {
  Start({.queue_delay_max = seconds(1)});
  Answer first = Submit(MakeWork(1, 2));
  Step();
  Answer answer = Submit(MakeOtherWork(1));
  StepToEnd();
  EXPECT_TRUE(Ready(answer));
}

TEST_F(BatchLoopTest, WaitingLosesNoDeadline) {
  Start({.batch_rows_max = 2000, .queue_delay_max = seconds(1)});
  Answer longer = Submit(MakeWork(1000, 500));
  Step();
  clock_.Advance(milliseconds(1));  // an evaluation of 1,000 MACs takes 1 ms
  Step();
  Work hurried = MakeOtherWork(1000, 10);  // takes 10 ms
  hurried.patience.deadline = clock_.Now() + milliseconds(30);
  Answer answer = Submit(std::move(hurried));
  for (int evaluation = 0; evaluation < 29; ++evaluation) {
    clock_.Advance(milliseconds(1));
    Step();
  }
  ASSERT_TRUE(Ready(answer));
  EXPECT_TRUE(answer.get().ok());
  EXPECT_FALSE(Ready(longer));
  // It began when its time was 10 ms and a margin of 2, not before.
  const auto began = std::ranges::find(seen_, size_t{1}, &Seen::batch);
  EXPECT_EQ(began - seen_.begin(), 19);
}

TEST_F(BatchLoopTest, RowsJoinARunUnderWay) {
  Start({});
  WorkTimes times;
  Answer first = Submit(MakeWork(2, 4, 10));
  Steps(2);
  Answer second = Submit(MakeWork(3, 4, 20), &times);
  Steps(3);  // answers follow an evaluation
  EXPECT_TRUE(Ready(first));
  StepToEnd();
  ExpectRows(first.get(), 2, 10);
  const absl::StatusOr<WorkResult> joined = second.get();
  ExpectRows(joined, 3, 20);
  EXPECT_EQ(joined->engine, "fake");
  EXPECT_EQ(joined->engine_reason, "there is no other");
  EXPECT_EQ(joined->device, "cpu");
  EXPECT_THAT(seen_,
              ElementsAre(Seen{0, 2}, Seen{0, 2}, Seen{0, 5}, Seen{0, 5}, Seen{0, 3}, Seen{0, 3}));
  EXPECT_EQ(control_->batches().size(), 1u);
}

TEST_F(BatchLoopTest, StepsAreSharedWhateverTheirNumber) {
  Start({});
  Answer a = Submit(MakeWork(1, 3)), b = Submit(MakeWork(1, 4)), c = Submit(MakeWork(1, 5));
  StepToEnd();
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 3}, Seen{0, 3}, Seen{0, 3}, Seen{0, 2}, Seen{0, 1}));
}

TEST_F(BatchLoopTest, ARunTakesInNoMoreThanItsRoom) {
  control_->room = 4;
  Start({});
  Answer first = Submit(MakeWork(2, 2));
  Step();
  Answer fits = Submit(MakeWork(2, 2)), waits = Submit(MakeWork(1, 2));
  StepToEnd();
  EXPECT_TRUE(fits.get().ok());
  EXPECT_TRUE(waits.get().ok());
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 2}, Seen{0, 4}, Seen{0, 3}, Seen{0, 1}));
}

TEST_F(BatchLoopTest, AShortOneIsNotStuckBehindALongOneOfItsKey) {
  Start({});
  Answer longer = Submit(MakeWork(4, 6));
  Steps(2);
  Answer brief = Submit(MakeWork(1, 1, 7));
  Steps(2);
  EXPECT_TRUE(Ready(brief));
  ExpectRows(brief.get(), 1, 7);
  StepToEnd();
  EXPECT_TRUE(longer.get().ok());
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 4}, Seen{0, 4}, Seen{1, 1}, Seen{0, 4}, Seen{0, 4},
                                 Seen{0, 4}, Seen{0, 4}));
}

TEST_F(BatchLoopTest, ALongOneDoesNotStretchAShortRun) {
  Start({});
  Answer brief = Submit(MakeWork(1, 3));
  Step();
  Answer longer = Submit(MakeWork(9, 50));
  Steps(3);
  EXPECT_TRUE(Ready(brief));
  StepToEnd();
  EXPECT_THAT(std::vector(seen_.begin(), seen_.begin() + 4),
              ElementsAre(Seen{0, 1}, Seen{0, 1}, Seen{0, 1}, Seen{1, 9}));
}

TEST_F(BatchLoopTest, ShortAndLongShareWhereRowsCostLittle) {
  Start({.evaluation_macs_fixed = 100});
  Answer longer = Submit(MakeWork(4, 5));
  Steps(2);
  Answer brief = Submit(MakeWork(1));
  StepToEnd();
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 4}, Seen{0, 4}, Seen{0, 5}, Seen{0, 4}, Seen{0, 4}));
}

TEST_F(BatchLoopTest, ATurnEndsNoSoonerThanItsTime) {
  Start({.turn_max = milliseconds(1)});
  Answer longer = Submit(MakeWork(4, 5));
  Step();
  Answer brief = Submit(MakeWork(1));
  Step();
  clock_.Advance(milliseconds(1));
  StepToEnd();
  EXPECT_THAT(seen_,
              ElementsAre(Seen{0, 4}, Seen{0, 4}, Seen{1, 1}, Seen{0, 4}, Seen{0, 4}, Seen{0, 4}));
}

TEST_F(BatchLoopTest, AnotherSolverTakesTheRunThatGaveWay) {
  Start({.solvers = 2});
  Answer longer = Submit(MakeWork(4, 5));
  Step(0);
  Answer brief = Submit(MakeWork(1, 2));
  Step(0);  // gives way to the brief one
  Step(1);
  Step(1);
  Step(0);
  Step(1);
  Step(1);
  EXPECT_FALSE(Step(0));
  EXPECT_TRUE(Ready(brief));
  EXPECT_FALSE(Step(1));
  EXPECT_TRUE(Ready(longer));
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 4}, Seen{1, 1}, Seen{0, 4}, Seen{0, 4}, Seen{1, 1},
                                 Seen{0, 4}, Seen{0, 4}));
}

TEST_F(BatchLoopTest, NobodyGivesWayWhileASolverIsIdle) {
  Start({.solvers = 2});
  EXPECT_FALSE(Step(0));
  EXPECT_FALSE(Step(1));
  Answer longer = Submit(MakeWork(4, 3));
  Step(0);
  Answer brief = Submit(MakeWork(1, 1));
  Step(0);
  Step(1);
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 4}, Seen{0, 4}, Seen{1, 1}));
}

TEST_F(BatchLoopTest, AFloodOfShortOnesStarvesNobody) {
  Start({.batch_rows_max = 1});
  Answer longer = Submit(MakeWork(1, 20, 5));
  Work other = MakeWork(1, 300, 6);
  other.spec.tier = Tier::kDouble;
  Answer longest = Submit(std::move(other));
  std::vector<Answer> brief;
  int turns = 0;
  while (!Ready(longest) && turns < 20000) {
    while (loop_->depth().rows < 3) brief.push_back(Submit(MakeWork(1)));
    Step();
    ++turns;
  }
  ExpectRows(longer.get(), 1, 5);
  ExpectRows(longest.get(), 1, 6);
  // At most three candidates, each passed over eight times as often: a turn in 25, and one more
  // for each of the others.
  const auto batches = control_->batches();
  std::vector<size_t> at;
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (batches[seen_[i].batch].spec.tier == Tier::kDouble) at.push_back(i);
  }
  ASSERT_EQ(at.size(), 300u);
  for (size_t i = 1; i < at.size(); ++i) EXPECT_LE(at[i] - at[i - 1], 28u);
  EXPECT_GT(brief.size(), 4000u);
}

TEST_F(BatchLoopTest, WhatWaitsInABusyQueueIsNotStarvedByShorterRowsOfIt) {
  Start({.batch_rows_max = 1});
  std::vector<Answer> brief;
  for (int i = 0; i < 3; ++i) brief.push_back(Submit(MakeWork(1)));
  Step();
  Answer longer = Submit(MakeWork(1, 4));
  for (int turns = 0; !Ready(longer) && turns < 200; ++turns) {
    while (loop_->depth().rows < 4) brief.push_back(Submit(MakeWork(1)));
    Step();
  }
  EXPECT_TRUE(Ready(longer));
}

TEST_F(BatchLoopTest, LiveRunsAreBounded) {
  Start({.live_runs_max = 4});  // two for any work, two for brief work
  std::vector<Answer> answers;
  int64_t steps = 5000;
  for (int level = 0; level < 4; ++level) {
    answers.push_back(Submit(MakeWork(1, steps)));
    Step();
    steps /= 10;
  }
  EXPECT_EQ(control_->batches().size(), 4u);  // each is brief beside all that were there
  Answer refused = Submit(MakeWork(1, 1));    // no place: it waits until a run ends
  Step();
  EXPECT_EQ(control_->batches().size(), 4u);
  EXPECT_EQ(loop_->depth().rows, 1);
  for (int i = 0; i < 100; ++i) Step();
  EXPECT_TRUE(Ready(answers[3]));
  EXPECT_TRUE(Ready(refused));
  StepToEnd();
  for (Answer& answer : answers) EXPECT_TRUE(answer.get().ok());
}

TEST_F(BatchLoopTest, PlacesForBriefWorkAreNotTakenByLongWork) {
  Start({.batch_rows_max = 1, .live_runs_max = 4});
  std::vector<Answer> longer;
  for (int i = 0; i < 3; ++i) longer.push_back(Submit(MakeWork(1, 100 + i)));
  for (int i = 0; i < 90; ++i) Step();
  EXPECT_LE(control_->batches().size(), 2u);
  Answer brief = Submit(MakeWork(1, 1));
  Steps(2);
  EXPECT_TRUE(Ready(brief));
}

TEST_F(BatchLoopTest, OneThatBreaksARunDoesNotFailThoseThatJoinedIt) {
  control_->break_run = [](const std::vector<Segment>& sharing) {
    for (const Segment& segment : sharing) {
      if (segment.first_row == 666) return absl::InternalError("a bad row");
    }
    return absl::OkStatus();
  };
  Start({});
  Answer a = Submit(MakeWork(1, 3, 1));
  Step();
  Answer bad = Submit(MakeWork(2, 3, 666)), b = Submit(MakeWork(3, 3, 2));
  StepToEnd();
  ExpectRows(a.get(), 1, 1);
  ExpectRows(b.get(), 3, 2);
  EXPECT_THAT(std::string(bad.get().status().message()), HasSubstr("a bad row"));
  EXPECT_EQ(loop_->depth().rows, 0);
  EXPECT_EQ(loop_->depth().queues, 0);
}

TEST_F(BatchLoopTest, RowsThatAnEngineRefusesFailAlone) {
  control_->refuse_rows = [](const Segment& segment) {
    return segment.first_row == 666 ? absl::InvalidArgumentError("a bad row") : absl::OkStatus();
  };
  Start({});
  Answer a = Submit(MakeWork(1, 3, 1)), bad = Submit(MakeWork(2, 3, 666));
  StepToEnd();
  ExpectRows(a.get(), 1, 1);
  EXPECT_EQ(bad.get().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 1}, Seen{0, 1}, Seen{0, 1}));
}

TEST_F(BatchLoopTest, ASpecThatNoEngineRunsIsRefusedToEachOfItsRequests) {
  control_->refuse_run = [](const BatchSpec& spec) {
    return spec.tier == Tier::kFast ? absl::UnimplementedError("no engine") : absl::OkStatus();
  };
  Start({});
  Work a = MakeWork(1), b = MakeWork(2);
  a.spec.tier = b.spec.tier = Tier::kFast;
  Answer first = Submit(std::move(a)), second = Submit(std::move(b));
  StepToEnd();
  EXPECT_EQ(first.get().status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(second.get().status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(loop_->depth().queues, 0);
  Answer other = Submit(MakeWork(1));
  StepToEnd();
  ExpectRows(other.get(), 1, 0);
}

TEST_F(BatchLoopTest, ReportsTheCompanyOfEachPiece) {
  std::vector<BatchReport> reports;
  Start({.on_batch = [&](const BatchReport& report) { reports.push_back(report); }});
  Work a = MakeWork(2, 4), b = MakeWork(6, 4);
  a.model_label = b.model_label = "fashion";
  a.plan_label = "euler:4";
  b.plan_label = "other";
  Answer first = Submit(std::move(a));
  Steps(2);
  Answer second = Submit(std::move(b));
  Step();
  Answer brief = Submit(MakeWork(1, 1));
  StepToEnd();
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[1].plan_label, "euler:4");
  EXPECT_EQ(reports[1].model_label, "fashion");
  EXPECT_DOUBLE_EQ(reports[1].rows, (2 + 2 + 8 + 8) / 4.0);
  EXPECT_DOUBLE_EQ(reports[1].requests, (1 + 1 + 2 + 2) / 4.0);
  EXPECT_EQ(reports[1].turns, 2);
  EXPECT_EQ(reports[2].plan_label, "other");
  EXPECT_DOUBLE_EQ(reports[2].rows, (8 + 8 + 6 + 6) / 4.0);
}

}  // namespace
}  // namespace hyperserve
