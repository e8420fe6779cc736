// The threads of a warm-up: two that share the specs on a GPU, and those that solve.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/registry/registry_options.h"
#include "server/warm_up.h"
#include "tests/server/recording_runtime.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;

// On a GPU two threads warm: together what one would.
TEST(WarmUpTest, TwoThreadsShareTheSpecs) {
  Calibration calibration = Calibrated({"euler:1", "heun:1", "rk4:2", "rk3:1", "midpoint:4"});
  const WarmUpSubject subject{.model = Loaded(fixture::TinyClassifier()),
                              .correction = nullptr,
                              .calibration = &calibration};
  const auto solved = [&](WarmUpThreads threads) {
    RecordingRuntime runtime;
    runtime.name = "cuda:0";
    EXPECT_TRUE(WarmUp(subject, 16, Never, runtime, threads).ok());
    std::vector<std::string> all;
    for (const auto& one : runtime.asked) {
      all.push_back(absl::StrCat(PrintMethod(one.spec.method),
                                 one.spec.dtype == Dtype::kU8 ? " bytes " : " ", one.rows));
    }
    // Any spec may be the first, which is warmed with bytes too.
    EXPECT_EQ(std::ranges::count_if(
                  all, [](const std::string& one) { return one.find("bytes") != one.npos; }),
              1);
    std::erase_if(all, [](const std::string& one) { return one.find("bytes") != one.npos; });
    std::ranges::sort(all);
    return all;
  };
  EXPECT_EQ(solved(WarmUpThreads::kTwo), solved(WarmUpThreads::kOne));
}

TEST(WarmUpTest, TwoThreadsEndWhereOneFails) {
  Calibration calibration = Calibrated({"euler:1", "heun:1", "rk4:2", "rk3:1", "midpoint:4"});
  const WarmUpSubject subject{
      .model = Loaded(fixture::TinyFlow()), .correction = nullptr, .calibration = &calibration};
  for (const Method broken : {Method::kEuler, Method::kHeun}) {
    RecordingRuntime runtime;
    runtime.name = "cuda:0";
    runtime.broken = broken;
    const absl::Status status = WarmUp(subject, 1, Never, runtime, WarmUpThreads::kTwo);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  }
}

// The function is the registry's thread's own, and the other thread stops where it says so.
TEST(WarmUpTest, OnlyTheCallersThreadAsksWhetherItIsInterrupted) {
  Calibration calibration = Calibrated({"euler:1", "heun:1", "rk4:2", "rk3:1", "midpoint:4"});
  const WarmUpSubject subject{
      .model = Loaded(fixture::TinyFlow()), .correction = nullptr, .calibration = &calibration};
  RecordingRuntime runtime;
  runtime.name = "cuda:0";
  const auto caller = std::this_thread::get_id();
  std::atomic<int> asked = 0;
  runtime.before = [&] {
    while (std::this_thread::get_id() != caller && asked < 3) std::this_thread::yield();
  };
  const auto third_time = [&] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    return ++asked >= 3;
  };
  const absl::Status status = WarmUp(subject, 1 << 16, third_time, runtime, WarmUpThreads::kTwo);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

// Each thread that solves plans its convolutions itself, so it must see them before it serves.
TEST(WarmSolversTest, TheNetsOfImagesAtSizesThatAreNotCaptured) {
  ModelSpec spec = fixture::ImageSpec();
  spec.input.shape = {1, 48, 48};
  const auto model = fixture::RandomModel(spec, 1);
  Calibration calibration = Calibrated({"euler:1", "rk4:2", "rk4:2/double", "rk4:2/fast"});
  const WarmUpSubject subject{.model = model, .correction = nullptr, .calibration = &calibration};
  RecordingRuntime runtime;
  runtime.name = "cuda:0";
  int calls = 0;
  const OnSolvers twice = [&](const auto& errand) {
    ++calls;
    for (int i = 0; i < 2; ++i) errand(runtime);
  };
  ASSERT_TRUE(WarmSolvers(subject, 1 << 16, Never, runtime, twice).ok());
  std::vector<std::string> asked;
  for (const auto& one : runtime.nets) {
    asked.push_back(absl::StrCat(Absl(TierName(one.spec.tier)), " ", one.rows));
  }
  EXPECT_THAT(asked, ElementsAre("exact 512", "exact 512", "exact 1024", "exact 1024",  //
                                 "double 512", "double 512", "double 1024", "double 1024"));
  runtime.room = 512;
  EXPECT_TRUE(WarmSolvers(subject, 1 << 16, Never, runtime, twice).ok()) << "batches are halved";
  calls = 0;
  const auto nobody_waits = [] { return true; };
  EXPECT_TRUE(absl::IsCancelled(WarmSolvers(subject, 1 << 16, nobody_waits, runtime, twice)));
  runtime.name = "cpu";
  EXPECT_TRUE(WarmSolvers(subject, 1 << 16, Never, runtime, twice).ok());
  EXPECT_EQ(calls, 0);
}

TEST(WarmSolversTest, OnTheDevice) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const auto images = fixture::RandomModel(fixture::ImageSpec(), 1);
  const auto flow = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  HypersolverSpec without_maps = fixture::FlowTablesSpec(*flow, Coefficients::kMap);
  without_maps.tables.resize(1);  // n = 0
  without_maps.steps = {0};
  Calibration nothing;
  for (const WarmUpSubject& subject : std::vector<WarmUpSubject>{
           {.model = images},
           {.model = images,
           .correction = fixture::RandomHypersolver(fixture::ImageCorrectionSpec(), *images, 2)},
           {.model = images,
           .correction = fixture::RandomHypersolver(
               fixture::TablesSpec(*images, Direction::kForward, Coefficients::kMap), *images, 2)},
           {.model = flow,
           .correction = fixture::RandomHypersolver(
               fixture::FlowTablesSpec(*flow, Coefficients::kMap), *flow, 2)},
           {.model = flow, .correction = fixture::RandomHypersolver(without_maps, *flow, 2)}}) {
    WarmUpSubject with_plans = subject;
    with_plans.calibration = &nothing;
    for (const BatchSpec& spec : WarmUpSpecs(with_plans)) {
      const absl::Status warm = runtime->WarmThread(spec, 3);
      EXPECT_TRUE(warm.ok()) << warm;
    }
  }
}

}  // namespace
}  // namespace hyperserve
