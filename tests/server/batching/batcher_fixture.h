// A batcher on fake engines, under a clock that moves when the test says so.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>

#include "server/batching/batcher.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_engine.h"

namespace hyperserve {

using Answer = std::future<absl::StatusOr<WorkResult>>;

class BatcherTest : public testing::Test {
 protected:
  void Start(BatcherOptions options) {
    auto started = Batcher::Start(
        std::move(options),
        [this]() -> absl::StatusOr<std::unique_ptr<Engine>> { return MakeFakeEngine(control_); },
        &clock_);
    ASSERT_TRUE(started.ok()) << started.status();
    batcher_ = *std::move(started);
  }

  Work MakeWork(int64_t rows, int steps = 1, uint64_t first_row = 0) {
    Work work;
    work.spec = {.model = model_,
                 .correction = nullptr,
                 .plan = FixedPlan{.method = {Method::kEuler}, .steps = steps},
                 .entry = Entry::kNoise};
    work.segment = {.rows = rows, .data = {}, .seed = 1, .first_row = first_row};
    work.patience.deadline = clock_.Now() + std::chrono::seconds(60);
    work.bytes = rows * 4;
    return work;
  }

  // `times`, where it is given, is written before the answer is ready.
  Answer Submit(Work work, WorkTimes* times = nullptr) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<WorkResult>>>();
    Answer answer = promise->get_future();
    batcher_->Submit(std::move(work),
                     [promise, times](absl::StatusOr<WorkResult> result, const WorkTimes& spent) {
                       if (times != nullptr) *times = spent;
                       promise->set_value(std::move(result));  // a second call would throw
                     });
    return answer;
  }

  static bool Ready(Answer& answer) {
    return answer.wait_for(std::chrono::milliseconds(20)) == std::future_status::ready;
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
  std::shared_ptr<const Model> model_ = FakeModel();
  std::unique_ptr<Batcher> batcher_;
};

}  // namespace hyperserve
