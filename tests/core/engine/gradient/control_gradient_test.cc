// Derivatives of solves whose condition changes with the depth, or is guided: equal to central
// differences in double, by every value at every knot, and no bit of a row from the rows beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/condition_knots.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/core/engine/gradient/gradient_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

constexpr Direction kBoth[] = {Direction::kDataToNoise, Direction::kNoiseToData};
constexpr Interpolation kEvery[] = {Interpolation::kLinear, Interpolation::kCubicHermite};

// Weights for each row, of so many steps: one half, the other half, both.
HostTensor Weights(int64_t rows, int64_t steps) {
  HostTensor weights = HostTensor::Zeros(Dtype::kF64, {rows, steps});
  constexpr double kWeights[] = {2.5, 1, 0, -1, 7};
  for (size_t i = 0; i < weights.as<double>().size(); ++i) {
    weights.as<double>()[i] = kWeights[i % std::size(kWeights)];
  }
  return weights;
}

class ControlGradientTest : public GradientTest {
 protected:
  ControlGradientTest() { model_ = fixture::RandomModel(fixture::GuidedFlowSpec(), 1); }

  // Knots before, at and after the steps of the plan, and beyond the span.
  void PutOnKnots(Interpolation interpolation, PlannedSolve& solve) {
    solve.knots = {.depths = {-0.5, 0.1, 0.3, 0.5, 1.25}, .interpolation = interpolation};
    conditions_ = NormalRows(kRows, {5, 3}, 8);
  }

  std::vector<PlannedSolve> Guided(Direction direction) const {
    std::vector<PlannedSolve> solves = {Of(Fixed(Method::kRk4, 2), direction),
                                        Of(Fixed(Method::kAb2, 5), direction),
                                        Of(Fixed(Method::kHeun, 3), direction)};
    for (PlannedSolve& solve : solves) solve.guidance = View(weights_);
    solves.back().guidance = View(schedules_);
    return solves;
  }

  void ExpectVjp(const PlannedSolve& solve) {
    const BatchResult found = Vjp(solve, cotangent_);
    ExpectGradient(solve, found, [&](const BatchResult& end, int64_t row) {
      return RowDot(cotangent_, end.state, row);
    });
    if (on_cpu()) {
      EXPECT_EQ(found.state.bytes, Plain(solve, rows_, conditions_).state.bytes);
    }
  }

  void ExpectJvp(PlannedSolve solve) {
    const HostTensor tangent = NormalRows(kRows, {2}, 9);
    Shape features = conditions_.shape;
    features.erase(features.begin());
    const HostTensor of_condition = NormalRows(kRows, features, 10);
    const BatchResult pulled = Vjp(solve, cotangent_);
    const BatchResult plain = Plain(solve, rows_, conditions_);
    solve.derivative = Derivative::kJvp;
    solve.condition = View(conditions_);
    solve.vector = View(tangent);
    solve.condition_vector = View(of_condition);
    const BatchResult pushed = Run(solve, rows_);
    EXPECT_EQ(pushed.state.bytes, plain.state.bytes);
    EXPECT_EQ(pushed.nfe, plain.nfe);
    for (int64_t row = 0; row < kRows; ++row) {  // <v, J t> = <J^T v, t>
      EXPECT_NEAR(RowDot(cotangent_, pushed.product, row),
                  RowDot(pulled.product, tangent, row) +
                      RowDot(pulled.condition_product, of_condition, row),
                  1e-11);
    }
  }

  const HostTensor weights_ = Weights(kRows, 1), schedules_ = Weights(kRows, 3);
};

TEST_P(ControlGradientTest, OfASignalByItsValuesAtTheKnots) {
  for (const Direction direction : kBoth) {
    for (const Interpolation interpolation : kEvery) {
      for (PlannedSolve solve :
           {Of(Fixed(Method::kEuler, 4), direction), Of(Fixed(Method::kRk4, 2), direction)}) {
        SCOPED_TRACE(Name(solve));
        PutOnKnots(interpolation, solve);
        ExpectVjp(solve);
        ExpectJvp(solve);
      }
    }
  }
}

TEST_P(ControlGradientTest, OfAGuidedField) {
  for (const Direction direction : kBoth) {
    for (const PlannedSolve& solve : Guided(direction)) {
      SCOPED_TRACE(Name(solve));
      ExpectVjp(solve);
      ExpectJvp(solve);
    }
  }
}

TEST_P(ControlGradientTest, OfAGuidedSignal) {
  PlannedSolve solve = Of(Fixed(Method::kMidpoint, 3), Direction::kNoiseToData);
  PutOnKnots(Interpolation::kCubicHermite, solve);
  solve.guidance = View(weights_);
  ExpectVjp(solve);
  ExpectJvp(solve);
}

TEST_P(ControlGradientTest, OfDensities) {
  PlannedSolve solve = Of(Fixed(Method::kHeun, 3), Direction::kDataToNoise);
  solve.guidance = View(schedules_);
  ExpectDensityGradients(solve);
  PutOnKnots(Interpolation::kLinear, solve);
  solve.guidance = View(weights_);
  ExpectDensityGradients(solve);
}

TEST_P(ControlGradientTest, RowsPayForTheirHalvesAndForTheStepsThatKnotsCut) {
  PlannedSolve solve = Of(Fixed(Method::kHeun, 3), Direction::kDataToNoise);
  const auto evaluations = [&] { return Vjp(solve, cotangent_).nfe; };
  solve.guidance = View(weights_);
  EXPECT_EQ(evaluations(), (std::vector<int32_t>{12, 6, 6, 12, 12}));
  EXPECT_EQ(evaluations(), Plain(solve, rows_, conditions_).nfe);
  const BatchResult found = Vjp(solve, cotangent_);
  EXPECT_EQ(found.macs[0], 2 * 12 * model_->field_macs());
  solve.guidance = View(schedules_);
  EXPECT_EQ(evaluations(), Plain(solve, rows_, conditions_).nfe);
  solve.guidance = {};
  PutOnKnots(Interpolation::kLinear, solve);
  EXPECT_EQ(evaluations(), Plain(solve, rows_, conditions_).nfe);
  EXPECT_EQ(evaluations()[0], 2 * 6);  // three knots within the span, none at the end of a step
}

TEST_P(ControlGradientTest, ALongScheduleEvaluatesAgainWhatItTook) {
  constexpr int kSteps = kRecordedEvaluationsMax + 3;
  const HostTensor schedules = Weights(kRows, kSteps);
  PlannedSolve solve = Of(Fixed(Method::kEuler, kSteps), Direction::kNoiseToData);
  solve.guidance = View(schedules);
  const BatchResult found = Vjp(solve, cotangent_);
  ExpectGradient(solve, found, [&](const BatchResult& end, int64_t row) {
    return RowDot(cotangent_, end.state, row);
  });
  const BatchResult plain = Plain(solve, rows_, conditions_);
  EXPECT_EQ(found.nfe[0], plain.nfe[0] + 2 + 1 + 1);  // of 2.5, 1 and 0
}

class ControlGradientRowsTest : public GradientRowsTest {};

TEST_P(ControlGradientRowsTest, ARowHasTheBitsThatItHasAlone) {
  const HostTensor weights = Weights(kMany, 1), schedules = Weights(kMany, 2);
  const ConditionKnots knots = {.depths = {0.1, 0.3, 0.8},
                                .interpolation = Interpolation::kCubicHermite};
  PlannedSolve solve{.model = fixture::RandomModel(fixture::GuidedFlowSpec(), 1),
                     .plan = Fixed(Method::kRk4, 2),
                     .entry = Entry::kState,
                     .direction = Direction::kDataToNoise};
  for (const Derivative derivative : {Derivative::kVjp, Derivative::kJvp}) {
    solve.derivative = derivative;
    solve.knots = knots;
    solve.guidance = {};
    ExpectIndependent(solve, {2}, {2});
    solve.guidance = View(weights);
    ExpectIndependent(solve, {2}, {2});
    solve.knots = {};
    solve.guidance = View(schedules);
    ExpectIndependent(solve, {2}, {2});
  }
  solve.derivative = Derivative::kVjp;
  solve.log_density = LogDensity::kDivergence;
  ExpectIndependent(solve, {2}, {2});
}

INSTANTIATE_TEST_SUITE_P(Devices, ControlGradientTest, testing::ValuesIn(DeviceNames()),
                         DeviceTestName);
INSTANTIATE_TEST_SUITE_P(Devices, ControlGradientRowsTest, testing::ValuesIn(DeviceNames()),
                         DeviceTestName);

}  // namespace
}  // namespace hyperserve
