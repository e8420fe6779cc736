// Guidance and conditions on knots: each row gets the field that it asked for, bit for bit as alone
// on a CPU, and pays for that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/condition_knots.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/core/engine/conditions/condition_fixture.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

HostTensor Numbers(const std::vector<double>& numbers, Shape shape) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kF64, std::move(shape));
  std::copy(numbers.begin(), numbers.end(), tensor.as<double>().begin());
  return tensor;
}

// Classifier-free guidance.
class GuidanceTest : public ConditionTest {
 protected:
  PlannedSolve Guided(StepPlan plan, const HostTensor& guidance,
                      LogDensity density = LogDensity::kNone) const {
    PlannedSolve solve = Of(std::move(plan), nullptr, density);
    solve.model = guided_;
    solve.condition = View(conditions_);
    solve.guidance = View(guidance);
    return solve;
  }

  const std::shared_ptr<const Model> guided_ = fixture::RandomModel(fixture::GuidedFlowSpec(), 1);
  const HostTensor none_ = Numbers(guided_->spec().no_condition, {1, 3});
  const HostTensor weights_ = Numbers({1, 0, 2.5, -1, 1, 7, 0}, {7, 1});
  const HostTensor schedules_ =
      Numbers({1, 0, 2, 0, 0, 0, 3, 2, 1, 1, 1, 1, 2, 2, 2, 5, 0, 1, 0, 1, 5}, {7, 3});
};

TEST_P(GuidanceTest, ABatchIsALoopOfSingleRequests) {
  PlannedSolve saves = Guided(Dopri5(1e-4), weights_);
  saves.save_at = {0.25, 0.5};
  PlannedSolve double_tier = Guided(Fixed(Method::kRk4, 2), weights_, LogDensity::kStepMap);
  double_tier.tier = Tier::kDouble;
  for (PlannedSolve solve : {Guided(Fixed(Method::kEuler, 4), weights_), saves, double_tier,
                             Guided(Dopri5(1e-4), weights_, LogDensity::kDivergence),
                             Guided(Fixed(Method::kAb2, 5), weights_),
                             Guided(Fixed(Method::kRk4, 3), schedules_, LogDensity::kStepMap)}) {
    ExpectALoop(solve);
  }
}

TEST_P(GuidanceTest, AWeightOfOneOrZeroCostsOneHalf) {
  for (const StepPlan& plan : {StepPlan(Fixed(Method::kHeun, 3)), StepPlan(Dopri5(1e-4))}) {
    const BatchResult guided = Run(Guided(plan, weights_), rows_);
    PlannedSolve without = Of(plan);
    without.model = guided_;
    without.condition = View(conditions_);
    const BatchResult given = Run(without, rows_);
    without.condition = View(none_);
    const BatchResult none = Run(without, rows_);
    for (const int64_t row : {0, 4}) {
      ExpectRowEqual(guided.state, row, HostTensor::CopyOf(RowsOf(View(given.state), row, 1)));
      ExpectSameCosts(plan, guided, row, given, row);
    }
    for (const int64_t row : {1, 6}) {
      ExpectRowEqual(guided.state, row, HostTensor::CopyOf(RowsOf(View(none.state), row, 1)));
      ExpectSameCosts(plan, guided, row, none, row);
    }
    EXPECT_EQ(guided.macs[2], guided.nfe[2] * guided_->field_macs());
  }
  EXPECT_EQ(Run(Guided(Fixed(Method::kHeun, 3), weights_), rows_).nfe[2], 12);
  EXPECT_EQ(Run(Guided(Fixed(Method::kHeun, 3), schedules_), rows_).nfe,
            (std::vector<int32_t>{8, 6, 10, 6, 12, 8, 8}));
}

// A field that is linear in its condition is guided by the condition none + w (condition - none).
TEST_P(GuidanceTest, ALinearFieldIsGuidedByAnotherCondition) {
  ModelSpec spec = fixture::GuidedFlowSpec();
  spec.field = {{ConditionCatLayer{.features = 3}}, {LinearLayer{.in = 5, .out = 2}}};
  const auto linear = fixture::RandomModel(spec, 4);
  HostTensor moved = conditions_;
  for (int64_t i = 0; i < 21; ++i) {
    const double none = Number(none_, i % 3), weight = Number(weights_, i / 3);
    moved.as<double>()[static_cast<size_t>(i)] = none + weight * (Number(conditions_, i) - none);
  }
  for (const StepPlan& plan : {StepPlan(Fixed(Method::kRk4, 2)), StepPlan(Dopri5(1e-8))}) {
    for (const Direction direction : {Direction::kNoiseToData, Direction::kDataToNoise}) {
      PlannedSolve guided = Guided(plan, weights_, LogDensity::kDivergence);
      guided.model = linear;
      guided.tier = Tier::kDouble;
      guided.direction = direction;
      PlannedSolve other = guided;
      other.guidance = {};
      other.condition = View(moved);
      const BatchResult found = Run(guided, rows_), wanted = Run(other, rows_);
      for (int64_t i = 0; i < 14; ++i) {
        EXPECT_NEAR(Number(found.state, i), Number(wanted.state, i), 1e-6);
        EXPECT_NEAR(Number(found.log_density, i / 2), Number(wanted.log_density, i / 2), 1e-6);
      }
    }
  }
}

TEST_P(GuidanceTest, AScheduleHasAWeightForEachStep) {
  const BatchResult found = Run(Guided(Fixed(Method::kRk4, 3), schedules_), rows_);
  HostTensor state = rows_;
  for (int64_t step = 0; step < 3; ++step) {
    HostTensor now = HostTensor::Zeros(Dtype::kF64, {7, 1});
    for (int64_t row = 0; row < 7; ++row) {
      now.as<double>()[static_cast<size_t>(row)] = Number(schedules_, 3 * row + step);
    }
    PlannedSolve one = Guided(Fixed(Method::kRk4, 1), now);
    const std::array<double, 2>& span = guided_->spec().span;
    const double length = (span[1] - span[0]) / 3;
    one.span = {{span[0] + static_cast<double>(step) * length,
                 span[0] + static_cast<double>(step + 1) * length}};
    state = Run(one, state).state;
  }
  for (int64_t i = 0; i < 14; ++i) EXPECT_NEAR(Number(found.state, i), Number(state, i), 1e-4);
}

TEST_P(GuidanceTest, WhatItDoesNotTakeIsRefusedInWords) {
  PlannedSolve solve = Guided(Fixed(Method::kHeun, 3), weights_);
  const auto message = [&] { return std::string(TryRun(solve, rows_).status().message()); };
  solve.model = model_;
  EXPECT_THAT(message(), HasSubstr("guidance of a model without condition.none"));
  solve = Guided(Dopri5(1e-3), schedules_);
  EXPECT_THAT(message(), HasSubstr("a weight of guidance for each step wants fixed steps"));
  solve = Guided(Fixed(Method::kHeun, 3), schedules_);
  solve.save_at = {0.5};
  EXPECT_THAT(message(), HasSubstr("saves no states on the way"));
  solve = Guided(Fixed(Method::kHeun, 2), schedules_);
  EXPECT_THAT(message(), HasSubstr("guidance of 3 steps for 2 steps"));
  const HostTensor two = Numbers({1, 2}, {2, 1});
  solve = Guided(Fixed(Method::kHeun, 2), two);
  EXPECT_THAT(message(), HasSubstr("guidance: wanted F64 [7, 1] or [1, 1], found F64 [2, 1]"));
  solve = Guided(Hypersolved(Method::kHeun, 2), weights_);
  HypersolverSpec correction = fixture::ConditionalCorrectionSpec();
  solve.correction = fixture::RandomHypersolver(correction, *guided_, 2);
  EXPECT_THAT(message(), HasSubstr("guidance of a hypersolved plan"));
}

// Conditions that change with the depth.
class KnotsTest : public GuidanceTest {
 protected:
  PlannedSolve OnKnots(StepPlan plan, Interpolation interpolation,
                       LogDensity density = LogDensity::kNone) const {
    PlannedSolve solve = Of(std::move(plan), nullptr, density);
    solve.model = guided_;
    solve.condition = View(signals_);
    solve.knots = {.depths = {0.1, 0.3, 0.45, 0.8}, .interpolation = interpolation};
    return solve;
  }

  const HostTensor signals_ = NormalRows(7, {4, 3}, 8);
};

TEST_P(KnotsTest, ABatchIsALoopOfSingleRequests) {
  PlannedSolve guided = OnKnots(Fixed(Method::kRk4, 2), Interpolation::kCubicHermite);
  guided.guidance = View(weights_);
  for (PlannedSolve solve :
       {OnKnots(Fixed(Method::kEuler, 4), Interpolation::kLinear), guided,
        OnKnots(Dopri5(1e-4), Interpolation::kCubicHermite, LogDensity::kDivergence),
        OnKnots(Fixed(Method::kHeun, 3), Interpolation::kLinear, LogDensity::kStepMap)}) {
    ExpectALoop(solve);
  }
}

// f = B u + b: the integral of the signal, which three stages of a cubic find exactly.
TEST_P(KnotsTest, AFieldThatIsTheSignalIntegratesIt) {
  ModelSpec spec = fixture::ConditionalFlowSpec();
  spec.condition = {1};
  spec.field = {{ConditionCatLayer{.features = 1}}, {LinearLayer{.in = 3, .out = 2}}};
  const HostTensor weight = Numbers({0, 0, 1, 0, 0, 2}, {2, 3}), bias = Numbers({0, 0}, {2});
  const auto model =
      Model::FromBytes(PrintModelSpec(spec), SerializeSafetensors({{"field.1.weight", View(weight)},
                                                                   {"field.1.bias", View(bias)}}))
          .value();
  const HostTensor signal = Numbers({2, -1, 4}, {1, 3, 1});
  const HostTensor zero = Numbers({0, 0}, {1, 2});
  const auto end = [&](StepPlan plan, Interpolation interpolation, Direction direction) {
    PlannedSolve solve = Of(std::move(plan));
    solve.model = model;
    solve.tier = Tier::kDouble;
    solve.direction = direction;
    solve.condition = View(signal);
    solve.knots = {.depths = {0, 0.25, 0.75}, .interpolation = interpolation};
    const BatchResult result = Run(solve, zero);
    EXPECT_NEAR(Number(result.state, 1), 2 * Number(result.state, 0), 1e-9);
    return Number(result.state, 0);
  };
  // Trapezia, and the last value to the end; a cubic adds length^2 / 12 times the difference of
  // its slopes, -12 and 10.
  const double linear = 0.125 + 0.75 + 1, cubic = linear + 0.25 / 12 * (-12 - 10);
  for (const StepPlan& plan : {StepPlan(Fixed(Method::kRk4, 1)), StepPlan(Dopri5(1e-9))}) {
    EXPECT_NEAR(end(plan, Interpolation::kLinear, Direction::kDataToNoise), linear, 1e-7);
    EXPECT_NEAR(end(plan, Interpolation::kLinear, Direction::kNoiseToData), -linear, 1e-7);
    EXPECT_NEAR(end(plan, Interpolation::kCubicHermite, Direction::kDataToNoise), cubic, 1e-7);
    EXPECT_NEAR(end(plan, Interpolation::kCubicHermite, Direction::kNoiseToData), -cubic, 1e-7);
  }
}

TEST_P(KnotsTest, CountWhatTheyCutAndRefuseInWords) {
  PlannedSolve solve = OnKnots(Fixed(Method::kHeun, 2), Interpolation::kLinear);
  EXPECT_EQ(Run(solve, rows_).nfe[0], 2 * (2 + 4));
  const auto message = [&] { return std::string(TryRun(solve, rows_).status().message()); };
  solve.condition = View(conditions_);
  EXPECT_THAT(message(), HasSubstr("condition: shape wanted [7, 4, 3] or [1, 4, 3], found [7, 3]"));
  solve.plan = Fixed(Method::kAb2, 3);
  EXPECT_THAT(message(), HasSubstr("a condition on knots wants a classical one-step method"));
  solve.plan = Fixed(Method::kHeun, 3);
  solve.guidance = View(schedules_);
  EXPECT_THAT(message(), HasSubstr("and one weight of guidance"));
  solve.guidance = {};
  solve.knots.depths = {0.5, 0.5};
  EXPECT_THAT(message(), HasSubstr("two or more rising depths"));
  solve.model = fixture::RandomModel(fixture::FlowSpec(), 1);
  EXPECT_THAT(message(), HasSubstr("knots of a condition for a model that has none"));
}

INSTANTIATE_TEST_SUITE_P(Devices, GuidanceTest, testing::ValuesIn(DeviceNames()), DeviceTestName);
INSTANTIATE_TEST_SUITE_P(Devices, KnotsTest, testing::ValuesIn(DeviceNames()), DeviceTestName);

}  // namespace
}  // namespace hyperserve
