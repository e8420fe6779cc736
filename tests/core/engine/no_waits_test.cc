// Between its start and its end a fixed plan does not wait for the GPU: LibTorch fails where it
// would. And a plan that was warmed takes no memory from the driver, which would wait, too. For
// builds with CUDA; skipped where there is no device.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

bool Never() { return false; }

// While it lives, what would wait for a device fails.
class NoWaits {
 public:
  NoWaits() { Set(c10::cuda::SyncDebugMode::L_ERROR); }
  ~NoWaits() { Set(c10::cuda::SyncDebugMode::L_DISABLED); }
  NoWaits(const NoWaits&) = delete;
  NoWaits& operator=(const NoWaits&) = delete;

 private:
  static void Set(c10::cuda::SyncDebugMode mode) {
    c10::cuda::warning_state().set_sync_debug_mode(mode);
  }
};

class NoWaitsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (ListDevices().size() < 2) GTEST_SKIP() << "no CUDA device";
    runtime_ = MakeDeviceRuntime("cuda").value();
  }

  // From where the rows are on the device to the last evaluation, with what the engine makes once
  // already there.
  void ExpectNoWaits(const PlannedSolve& solve, const HostTensor& rows, const std::string& engine) {
    const BatchSpec spec = SpecOf(solve, rows.dtype);
    for (int i = 0; i < 2; ++i) {
      const auto started = runtime_->StartRun(spec, rows.shape[0]).value();
      ASSERT_EQ(started.choice.engine, engine) << started.choice.why;
      ASSERT_TRUE(started.run
                      ->Admit({.rows = rows.shape[0],
                               .data = View(rows),
                               .condition = solve.condition,
                               .control = ControlOf(solve)})
                      .ok());
      bool done = started.run->Advance(1, Never).value();
      EXPECT_FALSE(done);
      while (!done) {
        const auto no_waits = i > 0 ? std::make_unique<NoWaits>() : nullptr;
        const auto advanced = started.run->Advance(1, Never);
        ASSERT_TRUE(advanced.ok()) << engine << ": " << advanced.status();
        done = *advanced;
      }
      EXPECT_EQ(started.run->TakeFinished().value().size(), 1u);
    }
  }

  // Step by step, then captured.
  void ExpectNoWaits(const PlannedSolve& solve, const HostTensor& rows) {
    ExpectNoWaits(solve, rows, "readable");
    const BatchSpec spec = SpecOf(solve, rows.dtype);
    ASSERT_TRUE(runtime_->WarmUp(spec, ControlOf(solve), rows.shape[0], Never).ok());
    ExpectNoWaits(solve, rows, "graph");
  }

  std::unique_ptr<DeviceRuntime> runtime_;
};

TEST_F(NoWaitsTest, AFixedPlanOfAFlow) {
  const auto flow = fixture::RandomModel(fixture::FlowSpec(), 1);
  const auto correction = fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *flow, 2);
  for (const int64_t rows : {1, 256}) {
    PlannedSolve solve{.model = flow,
                       .plan = Fixed(Method::kRk4, 3),
                       .tier = Tier::kDouble,
                       .entry = Entry::kState,
                       .direction = Direction::kNoiseToData};
    ExpectNoWaits(solve, NormalRows(rows, {2}, 3));
    solve.correction = correction;
    solve.plan = Hypersolved(Method::kHeun, 2);
    ExpectNoWaits(solve, NormalRows(rows, {2}, 4));
  }
}

TEST_F(NoWaitsTest, AFixedPlanOfImages) {
  const auto model = fixture::RandomModel(fixture::ImageSpec(), 1);
  const auto correction = fixture::RandomHypersolver(fixture::ImageCorrectionSpec(), *model, 2);
  for (const int64_t rows : {1, 32}) {
    ExpectNoWaits({.model = model,
                   .correction = correction,
                   .plan = Hypersolved(Method::kEuler, 2),
                   .tier = Tier::kDouble,
                   .want_outputs = true},
                  NormalRows(rows, {1, 12, 12}, 5));
  }
}

// What two solves left is enough for all later ones.
TEST_F(NoWaitsTest, NothingIsTakenFromTheDriver) {
  const auto taken = [] {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(0).num_device_alloc;
  };
  const auto flow = fixture::RandomModel(fixture::FlowSpec(), 1);
  for (const StepPlan& plan : {StepPlan(Fixed(Method::kRk4, 3)), StepPlan(Dopri5(1e-4))}) {
    const PlannedSolve solve{.model = flow,
                             .plan = plan,
                             .tier = Tier::kDouble,
                             .entry = Entry::kState,
                             .direction = Direction::kNoiseToData};
    const HostTensor rows = NormalRows(256, {2}, 6);
    const BatchSpec spec = SpecOf(solve, rows.dtype);
    ASSERT_TRUE(runtime_->WarmUp(spec, ControlOf(solve), 256, Never).ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(Solve(*runtime_, solve, View(rows)).ok());
    const int64_t before = taken();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(Solve(*runtime_, solve, View(rows)).ok());
    EXPECT_EQ(taken(), before);
  }
}

}  // namespace
}  // namespace hyperserve
