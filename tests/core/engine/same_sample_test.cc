// Asking for a log-density changes no bit of a state: every shipped flow, plan and direction, on
// every device; and the runs behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/engine/paired_run.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::Each;

constexpr int64_t kRows = 40;

class SameSampleTest : public EngineTest {
 protected:
  // The solve with a density and without.
  void ExpectTheSame(PlannedSolve solve, const std::string& what) {
    const bool noise = solve.direction == Direction::kNoiseToData;
    solve.entry = noise ? Entry::kNoise : Entry::kState;
    const HostTensor states = noise ? HostTensor() : NormalRows(kRows, {2}, 7);
    const Shape& features = solve.model->spec().condition;
    const HostTensor condition = features.empty() ? HostTensor() : NormalRows(1, {features[0]}, 11);
    const Segment segment{.rows = kRows,
                          .data = states.view(),
                          .seed = 3,
                          .condition = condition.view(),
                          .control = ControlOf(solve)};
    solve.log_density = LogDensity::kNone;
    const BatchResult plain = SolveAlone(*runtime_, SpecOf(solve), solve.plan, segment).value();
    solve.log_density =
        solve.correction == nullptr ? LogDensity::kDivergence : LogDensity::kStepMap;
    const BatchResult dense = SolveAlone(*runtime_, SpecOf(solve), solve.plan, segment).value();
    EXPECT_EQ(dense.state.bytes, plain.state.bytes) << what;
    EXPECT_EQ(dense.status, plain.status) << what;
    EXPECT_EQ(dense.nfe, plain.nfe) << what;
    EXPECT_EQ(dense.correction_evaluations, plain.correction_evaluations) << what;
    EXPECT_EQ(dense.log_density.shape, Shape{kRows}) << what;
    ++compared_;
  }

  void ExpectTheSameOfClassicalPlans(const std::shared_ptr<const Model>& model,
                                     const std::string& name) {
    for (const char* text : {"euler:3", "rk4:2", "ab2:3", "dopri5:1e-3", "bosh3:1e-4", "tsit5:1e-5",
                             "midpoint:4@cosine", "rk4:2/double", "dopri5:1e-3/double"}) {
      const Plan plan = ParsePlan(text).value();
      PlannedSolve solve{.model = model, .plan = StepPlanOf(plan), .tier = plan.tier};
      for (const Direction direction : {Direction::kNoiseToData, Direction::kDataToNoise}) {
        solve.direction = direction;
        ExpectTheSame(solve, absl::StrCat(name, " ", text));
      }
    }
  }

  // Every K or n that the generation serves, in both tiers.
  void ExpectTheSameOfCorrection(const std::shared_ptr<const Model>& model,
                                 const std::string& folder) {
    const auto correction = Hypersolver::Load(folder, *model).value();
    const HypersolverSpec& spec = correction->spec();
    for (const int steps : spec.steps) {
      for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
        const FixedPlan plan{.method = spec.method, .steps = steps, .hypersolved = true};
        ExpectTheSame({.model = model,
                       .correction = correction,
                       .plan = plan,
                       .tier = tier,
                       .direction = spec.direction},
                      absl::StrCat(folder, " ", steps));
      }
    }
  }

  int compared_ = 0;
};

TEST_P(SameSampleTest, OfTheShippedFlows) {
  for (const char* name : {"checkerboard", "circles", "pinwheel", "rings", "two_moons"}) {
    const std::filesystem::path folder = std::filesystem::path(fixture::ShippedModels()) / name;
    const std::shared_ptr<const Model> model = Model::Load(folder).value();
    ExpectTheSameOfClassicalPlans(model, name);
    for (const auto& method : std::filesystem::directory_iterator(folder / "hypersolvers")) {
      for (const auto& generation : std::filesystem::directory_iterator(method)) {
        if (!generation.is_directory()) continue;
        ExpectTheSameOfCorrection(model, generation.path());
      }
    }
  }
  EXPECT_GT(compared_, 5 * 18 + 10);
}

class PairedRunTest : public EngineTest {
 protected:
  PairedRunTest() {
    SetPlan(StepPlan(Hypersolved(Method::kHeun, 3)), spec_);
    run_ = std::move(runtime_->StartRun(spec_, 8).value().run);
  }
  Segment Rows(int64_t rows, uint64_t first = 0) const {
    return {.rows = rows, .seed = 5, .first_row = first, .control = FixedSteps{3}};
  }
  std::vector<SolvedSegment> Finish() {
    while (!run_->Advance(1, nullptr).value()) continue;
    return run_->TakeFinished().value();
  }

  const std::shared_ptr<const Model> model_ = fixture::RandomModel(fixture::FlowSpec(), 1);
  BatchSpec spec_{
      .model = model_,
      .correction = fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *model_, 2),
      .entry = Entry::kNoise,
      .direction = Direction::kNoiseToData,
      .log_density = LogDensity::kStepMap};
  std::unique_ptr<hyperserve::Run> run_;
};

TEST_P(PairedRunTest, WhichSpecsSolveTheirStateApart) {
  const auto apart = [](BatchSpec spec) {
    return std::pair(SolvesStateApart(spec, false), SolvesStateApart(spec, true));
  };
  BatchSpec spec = spec_;
  EXPECT_EQ(apart(spec), std::pair(true, true));
  spec.tier = Tier::kDouble;
  EXPECT_EQ(apart(spec), std::pair(false, true));
  spec = spec_;
  spec.log_density = LogDensity::kDivergence;
  EXPECT_EQ(apart(spec), std::pair(false, true));
  spec = spec_;
  spec.want_state = false;
  EXPECT_EQ(apart(spec), std::pair(false, false));
  spec = spec_;
  spec.log_density = LogDensity::kNone;
  EXPECT_EQ(apart(spec), std::pair(false, false));
  spec = spec_;
  spec.derivative = Derivative::kVjp;
  EXPECT_EQ(apart(spec), std::pair(false, false));
}

TEST_P(PairedRunTest, ASegmentLeavesOnceWithBothHalves) {
  const Ticket one = run_->Admit(Rows(2)).value();
  ASSERT_FALSE(run_->Advance(2, nullptr).value());
  const Ticket two = run_->Admit(Rows(3, 2)).value();
  const std::vector<SolvedSegment> solved = Finish();
  ASSERT_EQ(solved.size(), 2u);
  for (const SolvedSegment& segment : solved) {
    const int64_t rows = segment.ticket == one ? 2 : 3;
    EXPECT_TRUE(segment.ticket == one || segment.ticket == two);
    EXPECT_EQ(segment.rows.state.shape, (Shape{rows, 2}));
    EXPECT_EQ(segment.rows.log_density.shape, Shape{rows});
    EXPECT_THAT(segment.rows.status, Each(RowStatus::kConverged));
  }
  EXPECT_TRUE(run_->TakeFinished().value().empty());
}

TEST_P(PairedRunTest, WhatIsDroppedOrCancelledIsGone) {
  const Ticket dropped = run_->Admit(Rows(2)).value();
  const Ticket kept = run_->Admit(Rows(3, 2)).value();
  run_->Drop(dropped);
  run_->Drop(77);
  std::vector<SolvedSegment> solved = Finish();
  ASSERT_EQ(solved.size(), 1u);
  EXPECT_EQ(solved[0].ticket, kept);

  ASSERT_TRUE(run_->Admit(Rows(2)).ok());
  EXPECT_EQ(run_->Advance(1, [] { return true; }).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(run_->TakeFinished().value().empty());
  // The second asked is the density's run: the state's had advanced by then.
  ASSERT_TRUE(run_->Admit(Rows(2)).ok());
  int asked = 0;
  EXPECT_FALSE(run_->Advance(1, [&] { return ++asked > 1; }).ok());
  EXPECT_TRUE(run_->TakeFinished().value().empty());
  const Ticket after = run_->Admit(Rows(2)).value();
  solved = Finish();
  ASSERT_EQ(solved.size(), 1u);
  EXPECT_EQ(solved[0].ticket, after);
}

// A start that is not finite ends its row in both halves, and the row beside it goes on.
TEST_P(PairedRunTest, ARowThatFailsHasNoDensity) {
  spec_.entry = Entry::kState;
  spec_.dtype = Dtype::kF32;
  HostTensor rows = HostTensor::Zeros(Dtype::kF32, {2, 2});
  for (float& value : rows.as<float>().first(2)) value = std::numeric_limits<float>::infinity();
  const Segment segment{.rows = 2, .data = rows.view(), .control = FixedSteps{3}};
  const BatchResult solved =
      SolveAlone(*runtime_, spec_, StepPlan(Hypersolved(Method::kHeun, 3)), segment).value();
  BatchSpec plain = StateAlone(spec_);
  const BatchResult alone =
      SolveAlone(*runtime_, plain, StepPlan(Hypersolved(Method::kHeun, 3)), segment).value();
  ASSERT_EQ(alone.status[0], RowStatus::kNonFinite);
  EXPECT_EQ(solved.status, alone.status);
  EXPECT_TRUE(std::isnan(solved.log_density.as<double>()[0]));
  EXPECT_FALSE(std::isnan(solved.log_density.as<double>()[1]));
}

TEST_P(PairedRunTest, RefusedRowsLeaveNoHalf) {
  Segment wrong = Rows(2);
  wrong.control = ErrorControl{.rtol = 1e-3, .atol = 1e-3};
  EXPECT_FALSE(run_->Admit(wrong).ok());
  EXPECT_TRUE(run_->Advance(1, nullptr).value());
}

INSTANTIATE_TEST_SUITE_P(Devices, SameSampleTest, testing::ValuesIn(DeviceNames()), DeviceTestName);
INSTANTIATE_TEST_SUITE_P(Devices, PairedRunTest, testing::ValuesIn(DeviceNames()), DeviceTestName);

}  // namespace
}  // namespace hyperserve
