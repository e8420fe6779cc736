// The batcher with its threads. What solvers do next, evaluation by evaluation: batch_loop_test.cc.
#include "server/batching/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/engine/batch_spec.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "server/batching/work.h"
#include "tests/server/batching/batcher_fixture.h"
#include "tests/testing/fake_engine.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

TEST_F(BatcherTest, RowsThatWaitTogetherAreSolvedTogether) {
  Start({.batch_rows_max = 8});
  control_->CloseGate();
  Answer running = Submit(MakeWork(8, 1, 300));
  control_->WaitForBatches(1);
  WorkTimes times;
  Answer a = Submit(MakeWork(3, 1, 100), &times);
  Answer b = Submit(MakeWork(5, 1, 7));
  clock_.Advance(milliseconds(2));
  control_->OpenGate();
  ExpectRows(running.get(), 8, 300);
  const absl::StatusOr<WorkResult> result = a.get();
  ExpectRows(result, 3, 100);
  ExpectRows(b.get(), 5, 7);
  ASSERT_EQ(control_->batches().size(), 2u);
  EXPECT_THAT(control_->batches()[1].segment_rows, ElementsAre(3, 5));
  EXPECT_DOUBLE_EQ(times.queue_seconds.value(), 0.002);
  EXPECT_EQ(times.solve_seconds, 0.0);
  EXPECT_EQ(result->engine, "fake");
  EXPECT_EQ(result->rows.bucket, 3);
}

TEST_F(BatcherTest, TheDeviceWithTheLeastPredictedWorkGoesFirst) {
  const auto second = std::make_shared<FakeEngineControl>();
  const auto runtime = MakeFakeRuntime(second);
  batcher_ = std::make_unique<Batcher>(TestOptions{}.options(),
                                       std::vector{runtime_.get(), runtime.get()}, &clock_);
  control_->CloseGate();
  second->CloseGate();
  const auto submit = [&](int64_t macs, uint64_t first_row) {
    Work work = MakeWork(1, 1, first_row);
    work.macs = macs;
    return Submit(std::move(work));
  };
  Answer large = submit(100, 1);
  control_->WaitForBatches(1);
  Answer small = submit(30, 2), next = submit(30, 3);
  second->WaitForBatches(1);
  Answer last = submit(50, 4);  // behind 60, not behind 100
  EXPECT_EQ(batcher_->depth().macs, 210);
  second->OpenGate();
  ExpectRows(small.get(), 1, 2);
  ExpectRows(next.get(), 1, 3);
  ExpectRows(last.get(), 1, 4);
  EXPECT_FALSE(Ready(large));
  EXPECT_EQ(control_->batches().size(), 1u);
  control_->OpenGate();
  ExpectRows(large.get(), 1, 1);
  EXPECT_TRUE(batcher_->Drain(seconds(60)));
}

TEST_F(BatcherTest, DifferentKeysNeverShareARun) {
  Start({});
  control_->CloseGate();
  Answer running = Submit(MakeWork(1));
  control_->WaitForBatches(1);
  std::vector<Work> works;
  for (int i = 0; i < 11; ++i) works.push_back(MakeWork(1));
  works[0].spec.want_state = false;
  works[1].spec.model = FakeModel();
  works[2].spec.method = {Method::kHeun};
  works[3].spec.tier = Tier::kDouble;
  works[4].spec.direction = Direction::kNoiseToData;
  works[5].spec.span = {0.0, 0.5};
  works[6].spec.save_at = {0.25};
  works[7].spec.stepping = Stepping::kErrorControlled;
  works[8].spec.want_outputs = true;
  works[9].spec.log_density = LogDensity::kDivergence;
  works[10].spec.dtype = Dtype::kF64;
  std::vector<Answer> answers;
  for (Work& work : works) answers.push_back(Submit(std::move(work)));
  EXPECT_EQ(batcher_->depth().queues, 12);
  EXPECT_EQ(batcher_->depth().rows, 11);
  EXPECT_EQ(batcher_->depth().requests, 11);
  control_->OpenGate();
  for (Answer& answer : answers) ExpectRows(answer.get(), 1, 0);
  EXPECT_EQ(control_->batches().size(), 12u);
  EXPECT_EQ(batcher_->depth().rows, 0);
}

TEST_F(BatcherTest, QueueLimitsShedAtOnce) {
  Start({.batch_rows_max = 8, .queue_rows_max = 10, .live_queues_max = 1});
  control_->CloseGate();
  Answer running = Submit(MakeWork(8));
  control_->WaitForBatches(1);
  Answer a = Submit(MakeWork(7));
  EXPECT_EQ(Submit(MakeWork(3)).get().status().code(), absl::StatusCode::kResourceExhausted);
  Work other = MakeWork(1);
  other.spec.tier = Tier::kDouble;
  EXPECT_EQ(Submit(std::move(other)).get().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(batcher_->depth().rows, 7);
  EXPECT_EQ(batcher_->depth().bytes, 60);
  Answer b = Submit(MakeWork(2));
  control_->OpenGate();
  EXPECT_TRUE(a.get().ok());
  EXPECT_TRUE(b.get().ok());
}

TEST_F(BatcherTest, DeadOnArrivalIsRefusedAtOnce) {
  Start({});
  Work late = MakeWork(1);
  late.patience.deadline = clock_.Now();
  EXPECT_EQ(Submit(std::move(late)).get().status().code(), absl::StatusCode::kDeadlineExceeded);
  Work cancelled = MakeWork(1);
  cancelled.patience.cancelled = [] { return true; };
  EXPECT_EQ(Submit(std::move(cancelled)).get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Submit(MakeWork(0)).get().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(control_->batches().empty());
}

TEST_F(BatcherTest, ARunStopsWhenNobodyWaitsForIt) {
  Start({});
  control_->CloseGate();
  auto flag = std::make_shared<std::atomic<bool>>(false);
  Work a_work = MakeWork(1, 1000, 10), b_work = MakeWork(1, 1000, 20);
  a_work.patience.cancelled = [flag] { return flag->load(); };
  b_work.patience.deadline = clock_.Now() + milliseconds(5);
  Answer a = Submit(std::move(a_work));
  Answer b = Submit(std::move(b_work));
  control_->WaitForBatches(1);
  flag->store(true);
  clock_.Advance(milliseconds(6));
  EXPECT_EQ(a.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(b.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(control_->evaluations(), 0);
  control_->OpenGate();
  ExpectRows(Submit(MakeWork(2)).get(), 2, 0);  // the solver is free again
}

TEST_F(BatcherTest, OversizeRequestIsSplitAndMerged) {
  Start({.batch_rows_max = 4, .solvers = 3});
  const absl::StatusOr<WorkResult> result = Submit(MakeWork(11, 1, 1000)).get();
  ExpectRows(result, 11, 1000);
  EXPECT_EQ(result->rows.nfe.size(), 11u);
  EXPECT_EQ(result->rows.bucket, 4);
  EXPECT_EQ(control_->batches().size(), 3u);

  std::vector<float> data(size_t{9} * 2);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  Work work = MakeWork(9);
  work.spec.entry = Entry::kState;
  work.segment.data = {
      .dtype = Dtype::kF32, .shape = {9, 2}, .bytes = std::as_bytes(std::span<const float>(data))};
  const absl::StatusOr<WorkResult> merged = Submit(std::move(work)).get();
  ASSERT_TRUE(merged.ok()) << merged.status();
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(merged->rows.state.as<float>()[i], FakeRow(data[2 * i]));
}

TEST_F(BatcherTest, WorkMayAskForSmallerRuns) {
  Start({.batch_rows_max = 8});
  Work work = MakeWork(4);
  work.batch_rows_max = 2;
  ExpectRows(Submit(std::move(work)).get(), 4, 0);
  EXPECT_EQ(control_->batches().size(), 2u);
}

TEST_F(BatcherTest, EverySolverTakesPart) {
  Start({.batch_rows_max = 1, .solvers = 3});
  control_->CloseGate();
  std::vector<Answer> answers;
  for (int i = 0; i < 3; ++i) answers.push_back(Submit(MakeWork(1, 2, i)));
  control_->WaitForBatches(3);
  control_->OpenGate();
  for (int i = 0; i < 3; ++i) ExpectRows(answers[i].get(), 1, i);
}

TEST_F(BatcherTest, PendingWorkIsBoundedUntilItIsAnswered) {
  Start({.pending_macs_max = 100});
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

TEST_F(BatcherTest, DrainFinishesWhatIsThereAndRefusesWhatComes) {
  Start({.queue_delay_max = seconds(100)});
  control_->CloseGate();
  Answer running = Submit(MakeWork(3, 50));
  control_->WaitForBatches(1);
  Work other = MakeWork(1, 50);
  other.spec.tier = Tier::kDouble;
  Answer waiting = Submit(std::move(other));
  control_->OpenGate();
  EXPECT_TRUE(batcher_->Drain(seconds(1000)));
  ExpectRows(running.get(), 3, 0);
  ExpectRows(waiting.get(), 1, 0);
  EXPECT_EQ(Submit(MakeWork(1)).get().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(BatcherTest, DrainFailsTheRestAfterItsLimit) {
  Start({.batch_rows_max = 1});
  control_->CloseGate();
  Answer running = Submit(MakeWork(1));
  Answer waiting = Submit(MakeWork(1));
  control_->WaitForBatches(1);
  EXPECT_FALSE(batcher_->Drain(milliseconds(0)));
  EXPECT_EQ(running.get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(waiting.get().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(BatcherTest, KeepsWhatTheRowsPointToUntilNoEngineReadsIt) {
  Start({});
  control_->CloseGate();
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owner;
  Work work = MakeWork(1, 2);
  work.keep_alive = std::move(owner);
  Answer answer = Submit(std::move(work));
  control_->WaitForBatches(1);
  control_->LetThrough(1);
  EXPECT_FALSE(watch.expired());
  control_->OpenGate();
  EXPECT_TRUE(answer.get().ok());
  batcher_.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(BatcherTest, AnswersAreGivenOutsideAllLocks) {
  Start({});
  std::promise<absl::StatusOr<WorkResult>> second;
  batcher_->Submit(MakeWork(1), [&](const absl::StatusOr<WorkResult>&, const WorkTimes&) {
    EXPECT_EQ(batcher_->depth().rows, 0);
    batcher_->Submit(MakeWork(1, 1, 5), [&](absl::StatusOr<WorkResult> result, const WorkTimes&) {
      second.set_value(std::move(result));
    });
  });
  ExpectRows(second.get_future().get(), 1, 5);
}

}  // namespace
}  // namespace hyperserve
