// Derivatives of fixed plans: equal to central differences of the plan itself in double, to the end
// and back by the same steps, and no bit of a row from the rows beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/core/engine/gradient/gradient_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

constexpr Direction kBoth[] = {Direction::kDataToNoise, Direction::kNoiseToData};

TEST_P(GradientTest, AVjpIsTheGradientOfThePlan) {
  for (const Direction direction : kBoth) {
    for (const PlannedSolve& solve : Solves(direction)) {
      SCOPED_TRACE(Name(solve));
      const BatchResult found = Vjp(solve, cotangent_);
      ExpectGradient(solve, found, [&](const BatchResult& end, int64_t row) {
        return RowDot(cotangent_, end.state, row);
      });
      if (!on_cpu()) continue;
      ExpectSameStates(found.state, Plain(solve, rows_, conditions_).state);
    }
  }
}

TEST_P(GradientTest, AJvpIsTheDerivativeAlongTheTangents) {
  const HostTensor tangent = NormalRows(kRows, {2}, 8), by_condition = NormalRows(kRows, {3}, 9);
  for (const Direction direction : kBoth) {
    for (PlannedSolve solve : Solves(direction)) {
      SCOPED_TRACE(Name(solve));
      const BatchResult above =
          Plain(solve, Moved(rows_, kStep, tangent), Moved(conditions_, kStep, by_condition));
      const BatchResult below =
          Plain(solve, Moved(rows_, -kStep, tangent), Moved(conditions_, -kStep, by_condition));
      const BatchResult pulled = Vjp(solve, cotangent_);
      solve.derivative = Derivative::kJvp;
      solve.condition = View(conditions_);
      solve.vector = View(tangent);
      solve.condition_vector = View(by_condition);
      const BatchResult found = Run(solve, rows_);
      ExpectSameStates(found.state, Plain(solve, rows_, conditions_).state);
      for (int64_t i = 0; i < 2 * kRows; ++i) {
        const double wanted = (Number(above.state, i) - Number(below.state, i)) / (2 * kStep);
        EXPECT_NEAR(Number(found.product, i), wanted, kClose * (1 + std::abs(wanted)));
      }
      for (int64_t row = 0; row < kRows; ++row) {  // <v, J t> = <J^T v, t>
        EXPECT_NEAR(RowDot(cotangent_, found.product, row),
                    RowDot(pulled.product, tangent, row) +
                        RowDot(pulled.condition_product, by_condition, row),
                    1e-12);
      }
    }
  }
}

TEST_P(GradientTest, TheGradientOfADensityIsThatOfItsPlan) {
  for (const PlannedSolve& solve : Solves(Direction::kDataToNoise)) ExpectDensityGradients(solve);
}

TEST_P(GradientTest, ALongPlanEvaluatesAgainOnItsWayBack) {
  constexpr int kSteps = 90;
  PlannedSolve solve = Of(Fixed(Method::kEuler, kSteps), Direction::kDataToNoise);
  const BatchResult found = Vjp(solve, cotangent_);
  ExpectGradient(solve, found, [&](const BatchResult& end, int64_t row) {
    return RowDot(cotangent_, end.state, row);
  });
  const int64_t again = kSteps - kRecordedEvaluationsMax;
  EXPECT_EQ(found.nfe[0], kSteps + again);
  EXPECT_EQ(found.macs[0], (2 * kSteps + again) * model_->field_macs());
  const BatchResult brief = Vjp(Of(Fixed(Method::kRk4, 2), Direction::kDataToNoise), cotangent_);
  EXPECT_EQ(brief.nfe[0], 8);
  EXPECT_EQ(brief.macs[0], 2 * 8 * model_->field_macs());
}

TEST_P(GradientTest, OfASpanWithoutLengthItIsTheVector) {
  PlannedSolve solve = Of(Fixed(Method::kEuler, 3), Direction::kDataToNoise);
  solve.span = {0.5, 0.5};
  const BatchResult found = Vjp(solve, cotangent_);
  EXPECT_EQ(found.product.bytes, cotangent_.bytes);
  EXPECT_EQ(found.condition_product.bytes, HostTensor::Zeros(Dtype::kF64, {kRows, 3}).bytes);
}

TEST_P(GradientTest, OfInputsItPassesTheInputMap) {
  const auto model = fixture::RandomModel(fixture::ImageSpec(), 1);
  PlannedSolve solve{.model = model, .plan = Fixed(Method::kHeun, 2), .tier = Tier::kDouble};
  const HostTensor images = NormalRows(2, {1, 12, 12}, 1),
                   cotangent = NormalRows(2, {8, 12, 12}, 2);
  const HostTensor tangent = NormalRows(2, {1, 12, 12}, 3);
  const BatchResult above = Run(solve, Moved(images, kStep, tangent));
  const BatchResult below = Run(solve, Moved(images, -kStep, tangent));
  const BatchResult plain = Run(solve, images);
  solve.derivative = Derivative::kVjp;
  solve.vector = View(cotangent);
  const BatchResult pulled = Run(solve, images);
  if (on_cpu()) {
    EXPECT_EQ(pulled.state.bytes, plain.state.bytes);
  }
  EXPECT_EQ(pulled.macs[0], 2 * (4 * model->field_macs() + model->stem_macs()));
  solve.derivative = Derivative::kJvp;
  solve.vector = View(tangent);
  const BatchResult pushed = Run(solve, images);
  EXPECT_EQ(pushed.macs[0], 2 * (4 * model->field_macs() + model->stem_macs()));
  for (int64_t row = 0; row < 2; ++row) {
    const double wanted =
        (RowDot(cotangent, above.state, row) - RowDot(cotangent, below.state, row)) / (2 * kStep);
    EXPECT_NEAR(RowDot(pulled.product, tangent, row), wanted, 1e-6);
    EXPECT_NEAR(RowDot(cotangent, pushed.product, row), wanted, 1e-6);
  }
}

TEST_P(GradientRowsTest, OfConditionalFlowsAndTheirDensities) {
  const auto model = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  PlannedSolve solve{.model = model,
                     .plan = Fixed(Method::kRk4, 2),
                     .entry = Entry::kState,
                     .direction = Direction::kDataToNoise,
                     .derivative = Derivative::kVjp};
  ExpectIndependent(solve, {2}, {2});
  solve.log_density = LogDensity::kDivergence;
  ExpectIndependent(solve, {2}, {2});
  solve.log_density = LogDensity::kStepMap;
  ExpectIndependent(solve, {2}, {2});
}

// Every kind of layer, on rows whose length fills no vector.
TEST_P(GradientRowsTest, OfRandomNets) {
  for (const Shape& row : {Shape{3}, Shape{3, 6, 2}}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      ModelSpec spec = fixture::FlowSpec();
      spec.input.shape = row;
      spec.field = fixture::RandomLayers(row, seed);
      SCOPED_TRACE(PrintModelSpec(spec));
      PlannedSolve solve{.model = fixture::RandomModel(spec, seed),
                         .plan = Fixed(Method::kHeun, 2),
                         .entry = Entry::kState,
                         .derivative = Derivative::kVjp};
      ExpectIndependent(solve, row, row);
      solve.derivative = Derivative::kJvp;
      ExpectIndependent(solve, row, row);
    }
  }
}

TEST_P(GradientRowsTest, OfImages) {
  PlannedSolve solve{.model = fixture::RandomModel(fixture::ImageSpec(), 1),
                     .plan = Fixed(Method::kEuler, 2),
                     .derivative = Derivative::kVjp};
  ExpectIndependent(solve, {1, 12, 12}, {8, 12, 12});
}

INSTANTIATE_TEST_SUITE_P(Devices, GradientTest, testing::ValuesIn(DeviceNames()), DeviceTestName);
INSTANTIATE_TEST_SUITE_P(Devices, GradientRowsTest, testing::ValuesIn(DeviceNames()),
                         DeviceTestName);

}  // namespace
}  // namespace hyperserve
