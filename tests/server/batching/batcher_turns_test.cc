// Long work beside short: turns, sizes of batches, bounds of what is pending.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "tests/server/batching/batcher_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

using BatcherTurns = BatcherTest;

TEST_F(BatcherTurns, WorkMayAskForSmallerBatches) {
  Start({.batch_rows_max = 8, .queue_delay_max = seconds(1)});
  Work work = MakeWork(4);
  work.batch_rows_max = 2;
  ExpectRows(Submit(std::move(work)).get(), 4, 0);  // two full batches need no time
  EXPECT_EQ(control_->batches().size(), 2u);
}

TEST_F(BatcherTurns, ALongBatchGivesWayToOthersAfterItsTurn) {
  std::mutex mutex;
  std::vector<int64_t> turns;
  Start({.batch_rows_max = 2,
         .queue_delay_max = milliseconds(1),
         .advance_steps = 1,
         .turn_max = milliseconds(50),
         .on_batch = [&](const BatchReport& report) {
           const std::lock_guard lock(mutex);
           turns.push_back(report.turns);
         }});
  control_->CloseGate();
  Answer longer = Submit(MakeWork(2, 1000, 10));
  control_->WaitForBatches(1);
  Answer same_key = Submit(MakeWork(2, 1000, 20));  // goes after the first, not beside it
  Answer shorter = Submit(MakeWork(2, 2, 30));
  control_->LetThrough(1);
  EXPECT_FALSE(Ready(shorter));  // within the turn
  EXPECT_EQ(control_->batches().size(), 1u);
  clock_.Advance(milliseconds(51));
  control_->LetThrough(1);  // the last step of the turn
  control_->WaitForBatches(2);
  control_->LetThrough(2);
  ExpectRows(shorter.get(), 2, 30);
  EXPECT_FALSE(Ready(longer));
  EXPECT_EQ(control_->batches().size(), 2u);
  control_->OpenGate();
  ExpectRows(longer.get(), 2, 10);
  ExpectRows(same_key.get(), 2, 20);
  EXPECT_EQ(control_->batches().size(), 3u);
  batcher_.reset();
  EXPECT_THAT(turns, ElementsAre(1, 2, 1));
}

TEST_F(BatcherTurns, ABatchThatGaveWayIsAnsweredWhenNobodyWaitsForIt) {
  Start({.batch_rows_max = 1,
         .queue_delay_max = milliseconds(1),
         .advance_steps = 1,
         .turn_max = milliseconds(0)});
  control_->CloseGate();
  Work work = MakeWork(1, 1000);
  work.patience.deadline = clock_.Now() + milliseconds(500);
  Answer late = Submit(std::move(work));
  control_->WaitForBatches(1);
  Answer other = Submit(MakeWork(1, 1, 5));
  control_->LetThrough(1);
  control_->WaitForBatches(2);  // the long one has given way
  clock_.Advance(milliseconds(501));
  control_->OpenGate();
  EXPECT_TRUE(other.get().ok());
  EXPECT_EQ(late.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(control_->steps_taken(), 1000);
  EXPECT_EQ(batcher_->depth().macs, 0);
}

TEST_F(BatcherTurns, DeadBehindALongBatchOfTheirOwnKeyAreAnsweredBeforeItEnds) {
  Start({.batch_rows_max = 1,
         .queue_delay_max = milliseconds(1),
         .advance_steps = 1,
         .turn_max = milliseconds(1)});
  control_->CloseGate();
  Answer longer = Submit(MakeWork(1, 1000));
  control_->WaitForBatches(1);
  Work hurried = MakeWork(1, 1000), given_up = MakeWork(1, 1000);
  hurried.patience.deadline = clock_.Now() + milliseconds(5);
  auto flag = std::make_shared<std::atomic<bool>>(false);
  given_up.patience.cancelled = [flag] { return flag->load(); };
  Answer late = Submit(std::move(hurried)), cancelled = Submit(std::move(given_up));
  EXPECT_EQ(batcher_->depth().rows, 2);
  flag->store(true);
  clock_.Advance(milliseconds(60));
  control_->LetThrough(1);  // the turn ends
  EXPECT_EQ(late.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(cancelled.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(batcher_->depth().rows, 0);
  EXPECT_FALSE(Ready(longer));
  control_->OpenGate();
  ExpectRows(longer.get(), 1, 0);
}

TEST_F(BatcherTurns, PendingWorkIsBoundedUntilItIsAnswered) {
  Start({.batch_rows_max = 1, .queue_delay_max = milliseconds(1), .pending_macs_max = 100});
  control_->CloseGate();
  Work heavy = MakeWork(1), light = MakeWork(1);
  heavy.macs = 90;
  light.macs = 20;
  Answer running = Submit(heavy);
  control_->WaitForBatches(1);  // it counts although it waits no longer
  EXPECT_EQ(batcher_->depth().macs, 90);
  EXPECT_EQ(Submit(light).get().status().code(), absl::StatusCode::kResourceExhausted);
  control_->OpenGate();
  EXPECT_TRUE(running.get().ok());
  while (batcher_->depth().macs > 0) std::this_thread::yield();  // an answer comes a moment earlier
  EXPECT_TRUE(Submit(light).get().ok());
}

}  // namespace
}  // namespace hyperserve
