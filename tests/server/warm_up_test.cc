#include "server/warm_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

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
#include "tests/server/recording_runtime.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;

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
