// A batcher, or its loop alone, on a fake device and under a clock that moves when the test says
// so.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "server/batching/batch_loop.h"
#include "server/batching/batcher.h"
#include "server/batching/batcher_options.h"
#include "server/batching/work.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_engine.h"

namespace hyperserve {

// What a test leaves unsaid is out of its way: no waiting for company, a decision after each
// evaluation, no limit near.
struct TestOptions {
  int64_t batch_rows_max = 256;
  std::chrono::microseconds queue_delay_max{0};
  int64_t queue_rows_max = 1 << 20;
  int64_t queue_bytes_max = 1 << 30;
  int64_t pending_macs_max = int64_t{1} << 60;
  int64_t live_queues_max = 64;
  int64_t live_runs_max = 64;
  int solvers = 1;
  std::chrono::microseconds turn_max{0};
  std::chrono::microseconds watch_max{0};
  double evaluation_macs_fixed = 0;
  std::function<void(const BatchReport&)> on_batch;
  std::function<void(std::string_view, int64_t)> on_device_full;
  std::function<void(std::string_view, const absl::Status&)> on_device_lost;

  BatcherOptions options() const {
    return {.batch_rows_max = batch_rows_max,
            .queue_delay_max = queue_delay_max,
            .queue_rows_max = queue_rows_max,
            .queue_bytes_max = queue_bytes_max,
            .pending_macs_max = pending_macs_max,
            .live_queues_max = live_queues_max,
            .live_runs_max = live_runs_max,
            .solvers = solvers,
            .turn_max = turn_max,
            .watch_max = watch_max,
            .evaluation_macs_fixed = evaluation_macs_fixed,
            .on_batch = on_batch,
            .on_device_full = on_device_full,
            .on_device_lost = on_device_lost};
  }
};

using Answer = std::future<absl::StatusOr<WorkResult>>;

// An adaptive row takes FakeEngineControl's number of steps; 0 steps here.
inline Work FakeWork(const std::shared_ptr<const Model>& model, int64_t rows, int64_t steps = 1,
                     uint64_t first_row = 0, Method method = Method::kEuler) {
  Work work;
  work.spec = {.model = model,
               .correction = nullptr,
               .method = {method},
               .stepping = steps > 0 ? Stepping::kFixed : Stepping::kErrorControlled,
               .entry = Entry::kNoise};
  work.segment = {.rows = rows, .data = {}, .seed = 1, .first_row = first_row};
  if (steps > 0) {
    work.segment.control = FixedSteps{steps};
  } else {
    work.segment.control = ErrorControl{};
  }
  work.bytes = rows * 4;
  work.evaluations = static_cast<double>(std::max<int64_t>(1, steps) * FakeStages({method}));
  return work;
}

class BatchingTest : public testing::Test {
 protected:
  Work MakeWork(int64_t rows, int64_t steps = 1, uint64_t first_row = 0) {
    Work work = FakeWork(model_, rows, steps, first_row);
    work.patience.deadline = clock_.Now() + std::chrono::seconds(60);
    return work;
  }

  // Of another spec: it shares no run with MakeWork's.
  Work MakeOtherWork(int64_t rows, int64_t steps = 1) {
    Work work = MakeWork(rows, steps);
    work.spec.tier = Tier::kDouble;
    return work;
  }

  // `times`, where it is given, is written before the answer is ready.
  template <class Batching>
  static Answer SubmitTo(Batching& batching, Work work, WorkTimes* times) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<WorkResult>>>();
    Answer answer = promise->get_future();
    batching.Submit(std::move(work),
                    [promise, times](absl::StatusOr<WorkResult> result, const WorkTimes& spent) {
                      if (times != nullptr) *times = spent;
                      promise->set_value(std::move(result));  // a second call would throw
                    });
    return answer;
  }

  static void ExpectRows(const absl::StatusOr<WorkResult>& result, int64_t rows,
                         uint64_t first_row) {
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(static_cast<int64_t>(result->rows.status.size()), rows);
    const auto states = result->rows.state.as<float>();
    for (int64_t i = 0; i < rows; ++i) {
      EXPECT_EQ(states[i], FakeRow(static_cast<double>(first_row) + i)) << "row " << i;
    }
  }

  FakeClock clock_;
  std::shared_ptr<FakeEngineControl> control_ = std::make_shared<FakeEngineControl>();
  std::unique_ptr<DeviceRuntime> runtime_ = MakeFakeRuntime(control_);
  std::shared_ptr<const Model> model_ = FakeModel();
};

// With solver threads.
class BatcherTest : public BatchingTest {
 protected:
  void Start(const TestOptions& options) {
    batcher_ = std::make_unique<Batcher>(options.options(), std::vector{runtime_.get()}, &clock_);
  }
  Answer Submit(Work work, WorkTimes* times = nullptr) {
    return SubmitTo(*batcher_, std::move(work), times);
  }
  static bool Ready(Answer& answer) {
    return answer.wait_for(std::chrono::milliseconds(20)) == std::future_status::ready;
  }

  std::unique_ptr<Batcher> batcher_;
};

// Without threads: the test takes the solvers' steps, and sees each evaluation.
class BatchLoopTest : public BatchingTest {
 protected:
  using Seen = FakeEngineControl::SeenEvaluation;

  void Start(const TestOptions& options) {
    control_->on_evaluation = [this](const Seen& seen) { seen_.push_back(seen); };
    loop_ = std::make_unique<BatchLoop>(options.options(), runtime_.get(), &clock_);
    seats_ = std::vector<BatchLoop::Seat>(static_cast<size_t>(options.solvers));
  }
  Answer Submit(Work work, WorkTimes* times = nullptr) {
    return SubmitTo(*loop_, std::move(work), times);
  }
  bool Step(size_t solver = 0) { return loop_->Step(seats_[solver]); }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) Step();
  }
  // The first solver alone, until it has nothing to do.
  void StepToEnd() {
    while (Step()) continue;
  }
  static bool Ready(Answer& answer) {
    return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  std::vector<Seen> seen_;
  std::unique_ptr<BatchLoop> loop_;
  std::vector<BatchLoop::Seat> seats_;
};

}  // namespace hyperserve
