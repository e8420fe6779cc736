// Many threads, keys, cancellations and deadlines at once: every request is answered exactly once,
// with its own rows. Run under the thread sanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "core/engine/engine.h"
#include "core/model/net/model.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/batching/batcher.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"
#include "tests/server/batching/batcher_fixture.h"
#include "tests/testing/fake_engine.h"

namespace hyperserve {
namespace {

constexpr int kClients = 6;
constexpr int kRequestsPerClient = 400;

struct Tally {
  std::atomic<int> answered{0}, right{0}, wrong{0}, expired{0}, cancelled{0}, shed{0}, other{0};

  void Count(const absl::StatusOr<WorkResult>& result, int64_t rows, uint64_t first_row) {
    ++answered;
    if (result.ok()) {
      bool same = static_cast<int64_t>(result->rows.status.size()) == rows;
      const auto states = result->rows.state.as<float>();
      for (int64_t i = 0; same && i < rows; ++i) {
        same = states[i] == FakeRow(static_cast<double>(first_row) + i);
      }
      ++(same ? right : wrong);
      return;
    }
    switch (result.status().code()) {
      case absl::StatusCode::kDeadlineExceeded:
        ++expired;
        break;
      case absl::StatusCode::kCancelled:
        ++cancelled;
        break;
      case absl::StatusCode::kResourceExhausted:
        ++shed;
        break;
      default:
        ++other;
    }
  }
};

void RunClient(int client, const std::shared_ptr<const Model>& model, Batcher& batcher,
               Tally& tally) {
  std::mt19937 random(static_cast<unsigned>(client));
  for (int i = 0; i < kRequestsPerClient; ++i) {
    const int64_t rows = 1 + random() % 40;
    const uint64_t first_row = random() % 100000;
    const int64_t steps = random() % 8 == 0 ? 40 : 1 + random() % 5;
    const Method method = random() % 3 == 0 ? Method::kRk4 : Method::kEuler;
    Work work = FakeWork(model, rows, steps, first_row, method);
    if (random() % 4 == 0) work.spec.tier = Tier::kDouble;
    work.evaluations *= 0.5 + static_cast<double>(random() % 4) / 2;  // predictions are wrong
    work.bytes = rows;
    work.macs = rows;
    const bool hurried = random() % 5 == 0;
    work.patience.deadline =
        Clock::Real().Now() +
        (hurried ? std::chrono::microseconds(random() % 3000) : std::chrono::seconds(600));
    if (random() % 5 == 0) {
      auto looks = std::make_shared<std::atomic<int>>(static_cast<int>(random() % 6));
      work.patience.cancelled = [looks] { return looks->fetch_sub(1) <= 0; };
    }
    batcher.Submit(
        std::move(work),
        [&tally, rows, first_row](const absl::StatusOr<WorkResult>& result, const WorkTimes&) {
          tally.Count(result, rows, first_row);
        });
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// With turns of no length every evaluation is followed by a decision.
class BatcherStress : public testing::TestWithParam<std::chrono::microseconds> {};
INSTANTIATE_TEST_SUITE_P(Turns, BatcherStress,
                         testing::Values(std::chrono::microseconds(0),
                                         std::chrono::microseconds(500)));

TEST_P(BatcherStress, EveryRequestIsAnsweredOnceWithItsOwnRows) {
  Tally tally;
  const auto control = std::make_shared<FakeEngineControl>();
  // A run that breaks now and then: its pieces are tried again, each alone.
  std::atomic<int> breaks{0};
  control->break_run = [&](const std::vector<Segment>& sharing) {
    return sharing.size() > 1 && ++breaks % 50 == 0 ? absl::InternalError("broken")
                                                    : absl::OkStatus();
  };
  const auto runtime = MakeFakeRuntime(control);
  const TestOptions options{.batch_rows_max = 16,
                            .queue_delay_max = std::chrono::microseconds(300),
                            .queue_rows_max = 600,
                            .live_queues_max = 4,
                            .live_runs_max = 10,
                            .solvers = 4,
                            .turn_max = GetParam(),
                            .watch_max = std::chrono::microseconds(200),
                            .evaluation_macs_fixed = 4};
  const auto batcher =
      std::make_unique<Batcher>(options.options(), std::vector{runtime.get()}, &Clock::Real());
  const auto model = FakeModel();
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] { RunClient(i, model, *batcher, tally); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(batcher->Drain(std::chrono::seconds(60)));

  EXPECT_EQ(tally.answered, kClients * kRequestsPerClient);
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_EQ(tally.other, 0);
  EXPECT_GT(tally.right, 0);
  EXPECT_GT(breaks, 50);
  EXPECT_GT(tally.shed, 0);
  // A request that was answered for one expired piece leaves its others in the queue until a solver
  // looks at them.
  QueueDepth depth = batcher->depth();
  for (int wait = 0; wait < 1000 && depth.rows > 0; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    depth = batcher->depth();
  }
  EXPECT_EQ(depth.requests, 0);
  EXPECT_EQ(depth.rows, 0);
  EXPECT_EQ(depth.bytes, 0);
  EXPECT_EQ(depth.macs, 0);
}

TEST_P(BatcherStress, DestructionUnderLoadAnswersEverything) {
  for (int round = 0; round < 20; ++round) {
    Tally tally;
    const auto control = std::make_shared<FakeEngineControl>();
    const auto runtime = MakeFakeRuntime(control);
    const TestOptions options{.batch_rows_max = 16,
                              .solvers = 3,
                              .turn_max = GetParam(),
                              .watch_max = std::chrono::microseconds(200)};
    {
      Batcher batcher(options.options(), std::vector{runtime.get()}, &Clock::Real());
      RunClient(round, FakeModel(), batcher, tally);
    }
    EXPECT_EQ(tally.answered, kRequestsPerClient);
    EXPECT_EQ(tally.wrong, 0);
  }
}

}  // namespace
}  // namespace hyperserve
