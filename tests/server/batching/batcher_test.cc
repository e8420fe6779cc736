#include "server/batching/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/batching/batcher_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(BatcherTest, FullBatchNeedsNoTime) {
  Start({.batch_rows_max = 8, .queue_delay_max = seconds(1)});
  Answer a = Submit(MakeWork(3, 1, 100));
  EXPECT_FALSE(Ready(a));
  Answer b = Submit(MakeWork(5, 1, 7));
  ExpectRows(a.get(), 3, 100);
  ExpectRows(b.get(), 5, 7);
  ASSERT_EQ(control_->batches().size(), 1u);
  EXPECT_THAT(control_->batches()[0].segment_rows, ElementsAre(3, 5));
}

TEST_F(BatcherTest, OverdueBatchGoesWithWhatIsThere) {
  Start({.batch_rows_max = 8, .queue_delay_max = milliseconds(2)});
  WorkTimes times;
  Answer a = Submit(MakeWork(3), &times);
  EXPECT_FALSE(Ready(a));
  clock_.Advance(milliseconds(2));
  const absl::StatusOr<WorkResult> result = a.get();
  ExpectRows(result, 3, 0);
  EXPECT_DOUBLE_EQ(times.queue_seconds.value(), 0.002);
  EXPECT_EQ(times.solve_seconds, 0.0);
  EXPECT_EQ(result->engine, "fake");
  EXPECT_EQ(result->rows.bucket, 3);
}

TEST_F(BatcherTest, DifferentKeysNeverShareABatch) {
  Start({.batch_rows_max = 64, .queue_delay_max = milliseconds(2)});
  std::vector<Work> works;
  for (int i = 0; i < 10; ++i) works.push_back(MakeWork(1));
  works[1].spec.model = FakeModel();
  works[2].spec.plan = AdaptivePlan{.method = {Method::kDopri5}, .rtol = 1e-5, .atol = 1e-5};
  works[3].spec.tier = Tier::kDouble;
  works[4].spec.direction = Direction::kNoiseToData;
  works[5].spec.span = {0.0, 0.5};
  works[6].spec.save_at = {0.25};
  works[7].spec.max_steps = 9;
  works[8].spec.want_outputs = true;
  works[9].spec.log_density = LogDensity::kDivergence;
  std::vector<Answer> answers;
  for (Work& work : works) answers.push_back(Submit(std::move(work)));
  EXPECT_EQ(batcher_->depth().queues, 10);
  EXPECT_EQ(batcher_->depth().rows, 10);
  clock_.Advance(milliseconds(2));
  for (Answer& answer : answers) ExpectRows(answer.get(), 1, 0);
  EXPECT_EQ(control_->batches().size(), 10u);
  EXPECT_EQ(batcher_->depth().rows, 0);
}

TEST_F(BatcherTest, QueueLimitsShedAtOnce) {
  Start({.batch_rows_max = 8,
         .queue_delay_max = seconds(1),
         .queue_rows_max = 5,
         .live_queues_max = 1});
  Answer a = Submit(MakeWork(4));
  EXPECT_EQ(Submit(MakeWork(2)).get().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Submit(MakeWork(1, 2)).get().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(batcher_->depth().rows, 4);
  EXPECT_EQ(batcher_->depth().bytes, 16);
  Answer b = Submit(MakeWork(1));
  clock_.Advance(seconds(1));
  ExpectRows(a.get(), 4, 0);
  ExpectRows(b.get(), 1, 0);
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

TEST_F(BatcherTest, DeadInTheQueueIsNotSolved) {
  Start({.batch_rows_max = 8, .queue_delay_max = milliseconds(10)});
  Work late = MakeWork(2, 1, 50);
  late.patience.deadline = clock_.Now() + milliseconds(5);
  auto flag = std::make_shared<std::atomic<bool>>(false);
  Work cancelled = MakeWork(2, 1, 60);
  cancelled.patience.cancelled = [flag] { return flag->load(); };
  WorkTimes times;
  Answer a = Submit(std::move(late), &times);
  Answer b = Submit(std::move(cancelled));
  Answer c = Submit(MakeWork(1, 1, 70));
  flag->store(true);
  clock_.Advance(milliseconds(10));
  EXPECT_EQ(a.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(b.get().status().code(), absl::StatusCode::kCancelled);
  ExpectRows(c.get(), 1, 70);
  EXPECT_THAT(control_->batches()[0].segment_rows, ElementsAre(1));
  EXPECT_DOUBLE_EQ(times.queue_seconds.value(), 0.01);
  EXPECT_FALSE(times.solve_seconds.has_value());
}

TEST_F(BatcherTest, ExpiredInARunningBatchLeavesTheOthersAlone) {
  Start({.batch_rows_max = 2, .queue_delay_max = seconds(1), .advance_steps = 1});
  control_->CloseGate();
  Work late = MakeWork(1, 3, 10);
  late.patience.deadline = clock_.Now() + milliseconds(5);
  WorkTimes times;
  Answer a = Submit(std::move(late), &times);
  Answer b = Submit(MakeWork(1, 3, 20));
  control_->WaitForBatches(1);
  clock_.Advance(milliseconds(6));
  control_->LetThrough(1);  // answered between two steps, before the batch ends
  EXPECT_EQ(a.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_DOUBLE_EQ(times.queue_seconds.value(), 0);
  EXPECT_DOUBLE_EQ(times.solve_seconds.value(), 0.006);
  EXPECT_FALSE(Ready(b));
  control_->OpenGate();
  ExpectRows(b.get(), 1, 20);
}

TEST_F(BatcherTest, BatchStopsWhenNobodyWaitsForIt) {
  Start({.batch_rows_max = 2, .queue_delay_max = seconds(1)});
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
  EXPECT_EQ(control_->steps_taken(), 0);
  control_->OpenGate();
  ExpectRows(Submit(MakeWork(2)).get(), 2, 0);  // the engine is free again
}

TEST_F(BatcherTest, OversizeRequestIsSplitAndMerged) {
  Start({.batch_rows_max = 4, .queue_delay_max = milliseconds(1), .solvers = 3});
  Answer noise = Submit(MakeWork(11, 1, 1000));
  clock_.Advance(milliseconds(1));
  const absl::StatusOr<WorkResult> result = noise.get();
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
  Answer rows = Submit(std::move(work));
  clock_.Advance(milliseconds(1));
  const absl::StatusOr<WorkResult> merged = rows.get();
  ASSERT_TRUE(merged.ok()) << merged.status();
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(merged->rows.state.as<float>()[i], FakeRow(data[2 * i]));
}

TEST_F(BatcherTest, OneBadRequestDoesNotFailItsNeighbours) {
  control_->refuse = [](const Batch& batch) {
    for (const Segment& segment : batch.segments) {
      if (segment.first_row == 666) return absl::InvalidArgumentError("a bad row");
    }
    return absl::OkStatus();
  };
  Start({.batch_rows_max = 3, .queue_delay_max = seconds(1)});
  Answer a = Submit(MakeWork(1, 1, 1));
  Answer bad = Submit(MakeWork(1, 1, 666));
  Answer b = Submit(MakeWork(1, 1, 2));
  ExpectRows(a.get(), 1, 1);
  ExpectRows(b.get(), 1, 2);
  EXPECT_THAT(std::string(bad.get().status().message()), HasSubstr("a bad row"));
}

TEST_F(BatcherTest, ARareKeyIsNotStarvedByABusyOne) {
  Start({.batch_rows_max = 1, .queue_delay_max = milliseconds(1)});
  control_->CloseGate();
  std::vector<Answer> busy;
  for (int i = 0; i < 20; ++i) busy.push_back(Submit(MakeWork(1, 1, i)));
  control_->WaitForBatches(1);
  Answer rare = Submit(MakeWork(1, 2, 99));
  control_->OpenGate();
  for (Answer& answer : busy) EXPECT_TRUE(answer.get().ok());
  ExpectRows(rare.get(), 1, 99);
  const auto batches = control_->batches();
  const auto place = std::find_if(batches.begin(), batches.end(), [](const auto& batch) {
    return std::get<FixedPlan>(batch.spec.plan).steps == 2;
  });
  EXPECT_LE(place - batches.begin(), 2);
}

TEST_F(BatcherTest, DrainFinishesWhatIsThereAndRefusesWhatComes) {
  Start({.batch_rows_max = 8, .queue_delay_max = seconds(100)});
  Answer a = Submit(MakeWork(3));
  EXPECT_TRUE(batcher_->Drain(seconds(1000)));
  ExpectRows(a.get(), 3, 0);
  EXPECT_EQ(Submit(MakeWork(1)).get().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(BatcherTest, DrainFailsTheRestAfterItsLimit) {
  Start({.batch_rows_max = 1, .queue_delay_max = milliseconds(1)});
  control_->CloseGate();
  Answer running = Submit(MakeWork(1));
  Answer waiting = Submit(MakeWork(1));
  control_->WaitForBatches(1);
  EXPECT_FALSE(batcher_->Drain(milliseconds(0)));
  EXPECT_EQ(running.get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(waiting.get().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(BatcherTest, KeepsWhatTheRowsPointToUntilNoEngineReadsIt) {
  Start({.batch_rows_max = 1, .queue_delay_max = milliseconds(1)});
  control_->CloseGate();
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owner;
  Work work = MakeWork(1);
  work.keep_alive = std::move(owner);
  Answer answer = Submit(std::move(work));
  control_->WaitForBatches(1);
  EXPECT_FALSE(watch.expired());
  control_->OpenGate();
  EXPECT_TRUE(answer.get().ok());
  batcher_.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(BatcherTest, ReportsEachBatch) {
  std::mutex mutex;
  std::vector<BatchReport> reports;
  Start({.batch_rows_max = 4, .queue_delay_max = seconds(1), .on_batch = [&](const BatchReport& r) {
           const std::lock_guard lock(mutex);
           reports.push_back(r);
         }});
  Work a = MakeWork(1), b = MakeWork(3);
  a.model_label = b.model_label = "fashion";
  a.plan_label = b.plan_label = "euler:1";
  Answer first = Submit(std::move(a)), second = Submit(std::move(b));
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  const std::lock_guard lock(mutex);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].rows, 4);
  EXPECT_EQ(reports[0].requests, 2);
  EXPECT_EQ(reports[0].model_label, "fashion");
  EXPECT_EQ(reports[0].plan_label, "euler:1");
}

TEST(BatcherStart, SaysWhyThereIsNoEngine) {
  auto started = Batcher::Start(
      {.solvers = 2},
      []() -> absl::StatusOr<std::unique_ptr<Engine>> {
        return absl::InvalidArgumentError("no such device");
      },
      &Clock::Real());
  EXPECT_THAT(std::string(started.status().message()), HasSubstr("no such device"));
}

}  // namespace
}  // namespace hyperserve
