// Requests whose callers wait no longer, and the times that are told of a request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/engine/engine.h"
#include "server/batching/batch_loop.h"
#include "server/batching/batcher_options.h"
#include "server/batching/work.h"
#include "tests/server/batching/batcher_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

TEST_F(BatchLoopTest, RowsForWhichNobodyWaitsLeaveTheirRun) {
  Start({});
  bool gone = false;
  Work late = MakeWork(1, 8, 10), given_up = MakeWork(2, 8, 20);
  late.patience.deadline = clock_.Now() + milliseconds(5);
  given_up.patience.cancelled = [&] { return gone; };
  WorkTimes times;
  Answer a = Submit(std::move(late), &times), b = Submit(std::move(given_up));
  Answer c = Submit(MakeWork(4, 4, 30));
  Step();
  clock_.Advance(milliseconds(6));
  Step();
  EXPECT_EQ(a.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_DOUBLE_EQ(times.queue_seconds.value(), 0);
  EXPECT_DOUBLE_EQ(times.solve_seconds.value(), 0.006);
  gone = true;
  Step();
  EXPECT_EQ(b.get().status().code(), absl::StatusCode::kCancelled);
  StepToEnd();
  ExpectRows(c.get(), 4, 30);
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 7}, Seen{0, 6}, Seen{0, 4}, Seen{0, 4}));
}

TEST_F(BatchLoopTest, WhatComesWhileAnotherIsAnsweredDoesNotWait) {
  Start({});
  WorkTimes times;
  Answer next;
  loop_->Submit(MakeWork(1), [&](const absl::StatusOr<WorkResult>&, const WorkTimes&) {
    clock_.Advance(milliseconds(3));
    next = Submit(MakeWork(1, 1, 10), &times);
  });
  StepToEnd();
  ExpectRows(next.get(), 1, 10);
  EXPECT_DOUBLE_EQ(times.queue_seconds.value(), 0);
}

TEST_F(BatchLoopTest, DeadInTheQueueIsNotSolved) {
  Start({.batch_rows_max = 8});
  Work late = MakeWork(2, 1, 50);
  late.patience.deadline = clock_.Now() + milliseconds(5);
  bool gone = false;
  Work cancelled = MakeWork(2, 1, 60);
  cancelled.patience.cancelled = [&] { return gone; };
  WorkTimes times;
  Answer a = Submit(std::move(late), &times), b = Submit(std::move(cancelled));
  Answer c = Submit(MakeWork(1, 1, 70));
  gone = true;
  clock_.Advance(milliseconds(10));
  StepToEnd();
  EXPECT_EQ(a.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(b.get().status().code(), absl::StatusCode::kCancelled);
  ExpectRows(c.get(), 1, 70);
  EXPECT_THAT(seen_, ElementsAre(Seen{0, 1}));
  EXPECT_DOUBLE_EQ(times.queue_seconds.value(), 0.01);
  EXPECT_FALSE(times.solve_seconds.has_value());
}

TEST_F(BatchLoopTest, AWholeSolveIsBookedWithAllOfItsEvaluations) {
  control_->whole_solves = true;
  control_->break_run = [&](const std::vector<Segment>&) {
    clock_.Advance(milliseconds(1));
    return absl::OkStatus();
  };
  Start({});
  Answer first = Submit(MakeWork(1, 100));  // a pace of 1 ms an evaluation
  StepToEnd();
  ExpectRows(first.get(), 1, 0);
  Answer before = Submit(MakeWork(1, 100));
  Work hurried = MakeOtherWork(1, 100);
  hurried.patience.deadline = clock_.Now() + milliseconds(1000);
  Answer after = Submit(std::move(hurried));
  StepToEnd();
  ExpectRows(before.get(), 1, 0);
  ExpectRows(after.get(), 1, 0);
}

TEST_F(BatchLoopTest, DeadBehindALongRunAreAnsweredBeforeItEnds) {
  Start({.batch_rows_max = 1, .live_runs_max = 2});
  Answer longer = Submit(MakeWork(1, 1000));
  Step();
  bool gone = false;
  Work hurried = MakeWork(1, 1000), given_up = MakeWork(1, 1000);
  hurried.patience.deadline = clock_.Now() + milliseconds(5);
  given_up.patience.cancelled = [&] { return gone; };
  Answer late = Submit(std::move(hurried)), cancelled = Submit(std::move(given_up));
  gone = true;
  clock_.Advance(milliseconds(60));
  Step();
  EXPECT_EQ(late.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(cancelled.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(loop_->depth().rows, 0);
  EXPECT_FALSE(Ready(longer));
}

}  // namespace
}  // namespace hyperserve
