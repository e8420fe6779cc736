#include "server/warm_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_runtime.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "server/clock/clock.h"
#include "server/registry/registry_options.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;

// Records what it is asked to warm. It returns the statuses of `answers` in turn, then OK.
class RecordingRuntime final : public DeviceRuntime {
 public:
  struct Asked {
    BatchSpec spec;
    StepControl control;
    int64_t rows = 0;
  };

  std::string_view device() const override { return name; }
  EngineKinds engines() const override { return kinds; }
  absl::StatusOr<StartedRun> StartRun(const BatchSpec&, int64_t) override {
    return absl::UnimplementedError("nothing is solved here");
  }
  absl::Status WarmUp(const BatchSpec& spec, const StepControl& control, int64_t rows,
                      const std::function<bool()>& cancelled) override {
    if (before) before();
    {
      const std::lock_guard lock(mutex);
      asked.push_back({spec, control, rows});
      clock.Advance(std::chrono::milliseconds(rows));
    }
    if (spec.method.method == broken) return absl::InternalError("it is broken");
    if (rows > room) return absl::ResourceExhaustedError("the memory of the device is full");
    return cancelled() ? absl::CancelledError("nobody waits") : absl::OkStatus();
  }

  absl::Status WarmThread(const BatchSpec& spec, int64_t rows) override {
    nets.push_back({spec, {}, rows});
    return rows > room ? absl::ResourceExhaustedError("it is full") : absl::OkStatus();
  }

  std::string name = "cpu";
  EngineKinds kinds;
  std::vector<Asked> nets;          // of WarmThread
  int64_t room = int64_t{1} << 40;  // rows
  std::function<void()> before;     // each warm-up
  Method broken = Method::kAlpha;
  std::mutex mutex;  // guards the two below while threads run
  std::vector<Asked> asked;
  FakeClock clock;  // a solve takes 1 ms a row
};

std::shared_ptr<const Model> Loaded(const fixture::LinearModel& files) {
  return Model::FromBytes(files.model_json, files.weights).value();
}

Calibration Calibrated(const std::vector<const char*>& plans) {
  Calibration calibration;
  for (const char* plan : plans) {
    PlanCalibration& measured = calibration.plans.emplace_back();
    measured.plan = ParsePlan(plan).value();
  }
  return calibration;
}

bool Never() { return false; }

TEST(WarmUpSpecsTest, OneForEachMethodAndTier) {
  Calibration calibration = Calibrated({"euler:1", "euler:4", "rk4:2", "dopri5:1e-3", "dopri5:1e-4",
                                        "rk4:2/double", "hyper_euler:1"});
  const std::vector<BatchSpec> specs = WarmUpSpecs({.model = Loaded(fixture::TinyClassifier()),
                                                    .correction = nullptr,
                                                    .calibration = &calibration});
  ASSERT_EQ(specs.size(), 4u);  // the default plan, dopri5:1e-5, is of a method that is there
  std::vector<std::string> methods;
  for (const BatchSpec& spec : specs) {
    methods.push_back(PrintMethod(spec.method));
    EXPECT_EQ(spec.entry, Entry::kInput);
    EXPECT_TRUE(spec.want_outputs);
    EXPECT_EQ(spec.correction, nullptr);
  }
  EXPECT_THAT(methods, ElementsAre("euler", "rk4", "dopri5", "rk4"));
  EXPECT_EQ(specs[2].stepping, Stepping::kErrorControlled);
  EXPECT_EQ(specs[3].tier, Tier::kDouble);
}

TEST(WarmUpSpecsTest, WhatACorrectionClaimsAndTheDefaultPlan) {
  const fixture::LinearModel files = fixture::TinyFlow();
  const auto model = Loaded(files);
  const GenerationFiles generation =
      fixture::TinyCorrection(files, fixture::DefaultCorrection(files));
  const auto correction = Hypersolver::FromBytes(generation.at("hypersolver.json"),
                                                 generation.at("weights.safetensors"), *model)
                              .value();
  Calibration nothing;
  const auto corrected =
      WarmUpSpecs({.model = model, .correction = correction, .calibration = &nothing});
  ASSERT_EQ(corrected.size(), 1u);
  EXPECT_EQ(corrected[0].correction, correction);
  EXPECT_EQ(corrected[0].method.method, Method::kHeun);
  EXPECT_EQ(corrected[0].direction, Direction::kNoiseToData);
  EXPECT_EQ(corrected[0].entry, Entry::kNoise);
  const auto classical =
      WarmUpSpecs({.model = model, .correction = nullptr, .calibration = &nothing});
  ASSERT_EQ(classical.size(), 1u);
  EXPECT_EQ(classical[0].method.method, Method::kDopri5);
}

TEST(WarmUpTest, AStepOfEverySpecAtEveryBucketTheLargestFirst) {
  RecordingRuntime runtime;
  runtime.name = "cuda:0";
  Calibration calibration = Calibrated({"rk4:7"});
  const WarmUpSubject subject{
      .model = Loaded(fixture::TinyFlow()), .correction = nullptr, .calibration = &calibration};
  EXPECT_TRUE(WarmUp(subject, 2, Never, runtime).ok());
  ASSERT_EQ(runtime.asked.size(), 4u);
  EXPECT_EQ(runtime.asked[0].rows, 2);
  EXPECT_EQ(runtime.asked[1].rows, 1);
  EXPECT_EQ(runtime.asked[0].control, StepControl(FixedSteps{1}));
  EXPECT_EQ(std::get<ErrorControl>(runtime.asked[2].control).max_steps, 1);
}

absl::Status FixedFastOnly(const BatchSpec& spec, int64_t) {
  if (spec.tier == Tier::kFast && spec.stepping == Stepping::kFixed) return absl::OkStatus();
  return absl::UnimplementedError("fixed plans in tier fast only");
}

TEST(WarmUpTest, TierFastWhereTheDeviceHasAnEngineForIt) {
  RecordingRuntime runtime;
  runtime.kinds = {{"fused", FixedFastOnly}};
  Calibration calibration = Calibrated({"rk4:7"});
  const WarmUpSubject subject{
      .model = Loaded(fixture::TinyFlow()), .correction = nullptr, .calibration = &calibration};
  EXPECT_TRUE(WarmUp(subject, 2, Never, runtime).ok());
  ASSERT_EQ(runtime.asked.size(), 3u);  // rk4, rk4 in tier fast, the default plan dopri5
  EXPECT_EQ(runtime.asked[0].spec.tier, Tier::kExact);
  EXPECT_EQ(runtime.asked[1].spec.tier, Tier::kFast);
  EXPECT_EQ(runtime.asked[1].spec.method, runtime.asked[0].spec.method);
  EXPECT_EQ(runtime.asked[2].spec.stepping, Stepping::kErrorControlled);
}

TEST(WarmUpTest, PlansOfTierFastThatWereCalibratedElsewhereAreLeftOut) {
  RecordingRuntime runtime;
  runtime.kinds = {{"readable", ReadableSupports}};
  Calibration calibration = Calibrated({"rk4:7", "rk4:7/fast"});
  const WarmUpSubject subject{
      .model = Loaded(fixture::TinyFlow()), .correction = nullptr, .calibration = &calibration};
  EXPECT_TRUE(WarmUp(subject, 2, Never, runtime).ok());
  ASSERT_EQ(runtime.asked.size(), 2u);  // rk4, the default plan dopri5
  for (const auto& asked : runtime.asked) EXPECT_EQ(asked.spec.tier, Tier::kExact);
}

TEST(WarmUpTest, EndsWhenNobodyWaits) {
  RecordingRuntime runtime;
  Calibration nothing;
  const WarmUpSubject subject{
      .model = Loaded(fixture::TinyFlow()), .correction = nullptr, .calibration = &nothing};
  const absl::Status status = WarmUp(
      subject, 1, [] { return true; }, runtime);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_EQ(runtime.asked.size(), 1u);
}

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

// A whole solve in a launch knows no batch sizes.
TEST(WarmUpTest, WhatAFusedEngineRunsIsWarmedOnce) {
  RecordingRuntime runtime;
  runtime.name = "cuda:0";
  runtime.kinds = {{"fused", [](const BatchSpec&, int64_t) { return absl::OkStatus(); }}};
  Calibration calibration = Calibrated({"dopri5:1e-5"});
  const WarmUpSubject subject{
      .model = Loaded(fixture::TinyFlow()), .correction = nullptr, .calibration = &calibration};
  EXPECT_TRUE(WarmUp(subject, 4096, Never, runtime).ok());
  ASSERT_EQ(runtime.asked.size(), 2u);  // tier exact and tier fast
  for (const auto& asked : runtime.asked) EXPECT_EQ(asked.rows, 1);
}

// Of batches that a device has no room for, smaller ones are warmed all the same.
TEST(WarmUpTest, ADeviceThatIsTooFullForTheLargest) {
  RecordingRuntime runtime;
  runtime.name = "cuda:0";
  runtime.room = 4;
  Calibration calibration = Calibrated({"dopri5:1e-5"});
  const WarmUpSubject subject{
      .model = Loaded(fixture::TinyFlow()), .correction = nullptr, .calibration = &calibration};
  EXPECT_TRUE(WarmUp(subject, 8, Never, runtime).ok());
  ASSERT_EQ(runtime.asked.size(), 4u);  // 8, 4, 2, 1
  EXPECT_EQ(runtime.asked.back().rows, 1);
}

// Where tables are captured, every one is asked for before it serves.
TEST(WarmUpTest, EveryTableOfALearnedSolver) {
  const auto model = fixture::RandomModel(fixture::FlowSpec(), 1);
  const HypersolverSpec tables = fixture::FlowTablesSpec(*model, Coefficients::kMap);
  Calibration nothing;
  const WarmUpSubject subject{.model = model,
                              .correction = fixture::RandomHypersolver(tables, *model, 2),
                              .calibration = &nothing};
  RecordingRuntime runtime;
  runtime.name = "cuda:0";
  EXPECT_TRUE(WarmUp(subject, 1, Never, runtime).ok());
  std::vector<int> asked;
  for (const auto& one : runtime.asked) {
    asked.push_back(std::get<FixedSteps>(one.control).steps);
  }
  EXPECT_THAT(asked, ElementsAre(3, 1, 0));
  runtime.asked.clear();
  runtime.name = "cpu";
  EXPECT_TRUE(WarmUp(subject, 1, Never, runtime).ok());
  EXPECT_EQ(runtime.asked.size(), 1u) << "a CPU makes the longest";
}

TEST(WarmUpTest, CalibratedTablesOfAClassicalMethod) {
  RecordingRuntime runtime;
  runtime.name = "cuda:0";
  Calibration calibration = Calibrated({"ab2:3", "ab2:5", "ab2:7/double"});
  const WarmUpSubject subject{
      .model = Loaded(fixture::TinyFlow()), .correction = nullptr, .calibration = &calibration};
  EXPECT_TRUE(WarmUp(subject, 1, Never, runtime).ok());
  ASSERT_GE(runtime.asked.size(), 3u);
  EXPECT_EQ(runtime.asked[0].control, StepControl(FixedSteps{5}));
  EXPECT_EQ(runtime.asked[1].control, StepControl(FixedSteps{3}));
  EXPECT_EQ(runtime.asked[2].control, StepControl(FixedSteps{7}));
  EXPECT_EQ(runtime.asked[2].spec.tier, Tier::kDouble);
}

TEST(WarmUpTest, InputsAlsoAsBytes) {
  RecordingRuntime runtime;
  Calibration calibration = Calibrated({"rk4:7", "euler:2"});
  const WarmUpSubject subject{.model = Loaded(fixture::TinyClassifier()),
                              .correction = nullptr,
                              .calibration = &calibration};
  EXPECT_TRUE(WarmUp(subject, 1, Never, runtime).ok());
  EXPECT_EQ(
      std::ranges::count(runtime.asked, Dtype::kU8, [](const auto& one) { return one.spec.dtype; }),
      1);
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
               fixture::FlowTablesSpec(*flow, Coefficients::kMap), *flow, 2)}}) {
    WarmUpSubject with_plans = subject;
    with_plans.calibration = &nothing;
    for (const BatchSpec& spec : WarmUpSpecs(with_plans)) {
      const absl::Status warm = runtime->WarmThread(spec, 3);
      EXPECT_TRUE(warm.ok()) << warm;
    }
  }
}

absl::Status NothingIsFast(const BatchSpec& spec, int64_t) {
  if (spec.tier != Tier::kFast) return absl::OkStatus();
  return absl::UnimplementedError("no tier fast here");
}

TEST(TimePlansTest, TheMedianOfEachBatchInProportionToTheSteps) {
  RecordingRuntime runtime;
  runtime.kinds = {{"readable", NothingIsFast}};
  Calibration calibration = Calibrated({"euler:4", "euler:32", "dopri5:1e-3", "euler:4/fast"});
  calibration.plans[2].nfe = 32;
  calibration.plans[3].times = {{.rows = 1, .seconds = 7}};  // of another device
  const WarmUpSubject subject{
      .model = Loaded(fixture::TinyFlow()), .correction = nullptr, .calibration = &calibration};
  ASSERT_TRUE(TimePlans(subject, 64, Never, runtime, runtime.clock).ok());
  const auto& plans = calibration.plans;
  EXPECT_THAT(plans[0].times, ElementsAre(BatchTime{1, 0.002}, BatchTime{64, 0.128}));
  EXPECT_THAT(plans[1].times, ElementsAre(BatchTime{1, 0.016}, BatchTime{64, 1.024}));
  EXPECT_THAT(plans[2].times, ElementsAre(BatchTime{1, 0.004}, BatchTime{64, 0.256}));
  EXPECT_TRUE(plans[3].times.empty());
  // Three runs of one row; of 64 rows one, since it takes long. Both plans of Euler repeat one
  // part.
  EXPECT_EQ(runtime.asked.size(), 2u * (3 + 1));
  EXPECT_EQ(runtime.asked[3].control, StepControl(FixedSteps{2}));
}

// The readable engine itself makes the step.
TEST(WarmUpTest, OnTheDevice) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  for (const fixture::LinearModel& files : {fixture::TinyFlow(), fixture::TinyClassifier()}) {
    Calibration calibration = Calibrated({"midpoint:3", "dopri5:1e-4"});
    const WarmUpSubject subject{
        .model = Loaded(files), .correction = nullptr, .calibration = &calibration};
    const absl::Status status = WarmUp(subject, 256, Never, *runtime);
    EXPECT_TRUE(status.ok()) << status;
    ASSERT_TRUE(TimePlans(subject, 32, Never, *runtime, Clock::Real()).ok());
    EXPECT_EQ(calibration.plans[0].times.size(), 2u);
    EXPECT_GT(calibration.plans[1].times[0].seconds, 0);
  }
}

}  // namespace
}  // namespace hyperserve
