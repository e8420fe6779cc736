// Simulated solvers under a loop that decides as it would in the daemon: no thread and no real
// time. An evaluation of f takes a time of its own and one for each row.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/model/net/model.h"
#include "core/plan/method.h"
#include "server/batching/batch_loop.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"
#include "tests/server/batching/batcher_fixture.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_engine.h"

namespace hyperserve {

inline constexpr int kSolvers = 2;
inline constexpr int64_t kStepsMax = 50;
inline constexpr int64_t kAdaptiveStepsMean = 30;  // what was predicted of every adaptive row

struct Call {
  std::chrono::nanoseconds at{0};
  int64_t rows = 1;
  int64_t steps = 1;  // K, or what an adaptive row turns out to take
  Method method = Method::kRk4;
  std::chrono::nanoseconds deadline{0};  // after it came; 0: none
  ClientKey client;
  double span = 1;  // of the solve; calls of other spans share no run

  bool adaptive() const { return method == Method::kDopri5; }
  bool one_step() const { return !adaptive() && steps == 1; }
  double row_evaluations() const {
    return static_cast<double>(rows * steps * FakeStages({method}));
  }
};

// The machine, and how it is used.
struct Machine {
  std::chrono::nanoseconds fixed = std::chrono::microseconds(50);  // of each evaluation
  std::chrono::nanoseconds row = std::chrono::microseconds(200);   // of each row in it
  int64_t batch_rows_max = 8;
  // It is fast and slow by turns for as long as this: evaluations take that share less and more.
  std::chrono::nanoseconds spell = std::chrono::seconds(1);
  double swing = 0;

  std::chrono::nanoseconds TimeOf(int64_t rows) const { return fixed + rows * row; }
  std::chrono::nanoseconds TimeOf(int64_t rows, std::chrono::nanoseconds now) const {
    const double factor = (now / spell) % 2 == 0 ? 1 - swing : 1 + swing;
    return std::chrono::nanoseconds(
        static_cast<int64_t>(static_cast<double>(TimeOf(rows).count()) * factor));
  }
  // Of a row in a full run: what the bare engine achieves at best.
  double RowSeconds() const {
    return std::chrono::duration<double>(TimeOf(batch_rows_max)).count() /
           static_cast<double>(batch_rows_max);
  }
  TestOptions Options() const {
    const double row_macs = 1e6;
    return {.batch_rows_max = batch_rows_max,
            .live_runs_max = int64_t{4} * kSolvers,
            .solvers = kSolvers,
            .turn_max = std::chrono::microseconds(500),
            .evaluation_macs_fixed =
                row_macs * static_cast<double>(fixed.count()) / static_cast<double>(row.count())};
  }
};

class Simulation {
 public:
  explicit Simulation(const Machine& machine) : free_at_(kSolvers, kIdle), seats_(kSolvers) {
    control_->on_evaluation = [this, machine](const FakeEngineControl::SeenEvaluation& seen) {
      spent_ += machine.TimeOf(seen.rows, Elapsed());
    };
    control_->adaptive_steps = [](const Segment& segment) {
      return static_cast<int64_t>(segment.seed);
    };
    loop_ = std::make_unique<BatchLoop>(machine.Options().options(), runtime_.get(), &clock_);
  }

  struct Outcome {
    double seconds = std::numeric_limits<double>::infinity();  // from the call to its answer
    absl::Status status;
    std::chrono::milliseconds retry_after{0};
  };
  // Calls in the order in which they come.
  std::vector<Outcome> Run(const std::vector<Call>& calls) {
    std::vector<Outcome> outcomes(calls.size());
    size_t next = 0;
    for (;;) {
      const auto solver = std::ranges::min_element(free_at_);
      if (next < calls.size() && calls[next].at <= *solver) {
        clock_.Advance(calls[next].at - Elapsed());
        Submit(calls[next], outcomes[next]);
        ++next;
        std::ranges::replace(free_at_, kIdle, Elapsed());
      } else if (*solver != kIdle) {
        clock_.Advance(*solver - Elapsed());
        spent_ = std::chrono::nanoseconds(0);
        const bool more = loop_->Step(seats_[static_cast<size_t>(solver - free_at_.begin())]);
        *solver = more ? Elapsed() + spent_ : kIdle;
      } else {
        return outcomes;
      }
    }
  }

  std::chrono::nanoseconds Elapsed() const { return clock_.Now() - begin_; }

 private:
  static constexpr std::chrono::nanoseconds kIdle = std::chrono::nanoseconds::max();

  void Submit(const Call& call, Outcome& outcome) {
    Work work = FakeWork(model_, call.rows, call.adaptive() ? 0 : call.steps, 0, call.method);
    if (call.adaptive()) {
      work.segment.seed = static_cast<uint64_t>(call.steps);
      work.evaluations = static_cast<double>(kAdaptiveStepsMean * FakeStages({call.method}));
    }
    work.evaluation_macs = 1e6;
    work.client = call.client;
    if (call.span != 1) work.spec.span = std::array<double, 2>{0, call.span};
    if (call.deadline.count() > 0) work.patience.deadline = clock_.Now() + call.deadline;
    loop_->Submit(std::move(work),
                  [this, &outcome, at = call.at](const auto& result, const WorkTimes& times) {
                    outcome = {.seconds = std::chrono::duration<double>(Elapsed() - at).count(),
                               .status = result.status(),
                               .retry_after = times.retry_after};
                  });
  }

  FakeClock clock_;
  const Clock::TimePoint begin_ = clock_.Now();
  const std::shared_ptr<FakeEngineControl> control_ = std::make_shared<FakeEngineControl>();
  const std::unique_ptr<DeviceRuntime> runtime_ = MakeFakeRuntime(control_);
  const std::shared_ptr<const Model> model_ = FakeModel();
  std::chrono::nanoseconds spent_{0};              // by the step that is simulated
  std::vector<std::chrono::nanoseconds> free_at_;  // when each solver looks again
  std::unique_ptr<BatchLoop> loop_;
  std::vector<BatchLoop::Seat> seats_;
};

}  // namespace hyperserve
