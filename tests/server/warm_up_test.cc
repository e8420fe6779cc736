#include "server/warm_up.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "core/model/net/model.h"
#include "tests/server/batching/batcher_fixture.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

std::shared_ptr<const Model> TinyModel() {
  const fixture::LinearModel flow = fixture::TinyFlow();
  return Model::FromBytes(flow.model_json, flow.weights).value();
}

using WarmUpTest = BatcherTest;

TEST_F(WarmUpTest, OneSolveOnEverySolver) {
  Start({.queue_delay_max = std::chrono::microseconds(0), .solvers = 2});
  EXPECT_TRUE(WarmUp(
                  TinyModel(), nullptr, 2, [] { return false; }, *batcher_, clock_)
                  .ok());
  ASSERT_EQ(control_->batches().size(), 2u);
  EXPECT_EQ(control_->batches()[0].rows, 1);
}

TEST_F(WarmUpTest, EndsWhenNobodyWaits) {
  Start({.queue_delay_max = std::chrono::microseconds(0)});
  control_->CloseGate();
  const absl::Status status = WarmUp(
      TinyModel(), nullptr, 1, [] { return true; }, *batcher_, clock_);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

// A shutdown answers for batches that still run, and the caller goes on to destroy what is its own.
TEST_F(WarmUpTest, ABatchThatOutlivesItKeepsWhatItUses) {
  std::promise<void> entered, leave;
  std::weak_ptr<const Model> model;
  std::atomic<bool> kept = false;
  control_->refuse = [&](const Batch&) {
    entered.set_value();
    leave.get_future().wait();
    kept = !model.expired();
    return absl::OkStatus();
  };
  Start({.queue_delay_max = std::chrono::microseconds(0), .advance_steps = 1});
  std::atomic<bool> over = false, asked_too_late = false;
  absl::Status status;
  std::thread caller([&] {
    const std::shared_ptr<const Model> own = TinyModel();
    model = own;
    const auto interrupted = [&] {
      if (over) asked_too_late = true;
      return false;
    };
    status = WarmUp(own, nullptr, 1, interrupted, *batcher_, clock_);
    over = true;
  });
  entered.get_future().wait();
  EXPECT_FALSE(batcher_->Drain(std::chrono::milliseconds(0)));
  caller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  leave.set_value();
  batcher_.reset();
  EXPECT_TRUE(kept);
  EXPECT_FALSE(asked_too_late);
}

}  // namespace
}  // namespace hyperserve
