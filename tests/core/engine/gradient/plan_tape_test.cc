// Derivatives of fixed plans: equal to central differences of the plan itself in double, to the end
// and back by the same steps, and no bit of a row from the rows beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 5;
// The error of a central difference is about h^2 |f'''| / 6 + 1e-16 |f| / h.
constexpr double kStep = 3e-6, kClose = 1e-8;

// base + h direction.
HostTensor Moved(const HostTensor& base, double h, const HostTensor& direction) {
  HostTensor moved = base;
  for (size_t i = 0; i < moved.as<double>().size(); ++i) {
    moved.as<double>()[i] += h * direction.as<double>()[i];
  }
  return moved;
}

// Ones in column `column` of every row.
HostTensor Column(const HostTensor& like, int64_t column) {
  HostTensor ones = HostTensor::Zeros(Dtype::kF64, like.shape);
  const int64_t width = like.elements() / like.shape[0];
  for (int64_t row = 0; row < like.shape[0]; ++row) {
    ones.as<double>()[static_cast<size_t>(row * width + column)] = 1.0;
  }
  return ones;
}

double RowDot(const HostTensor& a, const HostTensor& b, int64_t row) {
  const int64_t width = a.elements() / a.shape[0];
  double sum = 0;
  for (int64_t i = row * width; i < (row + 1) * width; ++i) sum += Number(a, i) * Number(b, i);
  return sum;
}

class GradientTest : public EngineTest {
 protected:
  // Two corrections that read z(s0) too; one of the field's direction, one against it.
  std::shared_ptr<const Hypersolver> Correction(Direction direction) const {
    HypersolverSpec spec = fixture::ConditionalCorrectionSpec();
    spec.direction = direction;
    spec.inputs.push_back(CorrectionInput::kState0);
    std::get<LinearLayer>(spec.net[1].kind).in += 2;
    return fixture::RandomHypersolver(spec, *model_, 2);
  }

  std::shared_ptr<const Hypersolver> Tables(Direction direction, Coefficients kind) const {
    HypersolverSpec spec = fixture::FlowTablesSpec(*model_, kind);
    spec.direction = direction;
    return fixture::RandomHypersolver(spec, *model_, 3);
  }

  PlannedSolve Of(StepPlan plan, Direction direction,
                  std::shared_ptr<const Hypersolver> correction = nullptr) const {
    return {.model = model_,
            .correction = std::move(correction),
            .plan = plan,
            .tier = Tier::kDouble,
            .entry = Entry::kState,
            .direction = direction};
  }

  std::vector<PlannedSolve> Solves(Direction direction) const {
    FixedPlan on_grid = Fixed(Method::kHeun, 3);
    on_grid.grid.kind = StepGrid::Kind::kCosine;
    const auto correction = Correction(direction);
    return {
        Of(Fixed(Method::kEuler, 4), direction),
        Of(Fixed(Method::kRk4, 2), direction),
        Of(Fixed(Method::kDopri5, 2), direction),
        Of(on_grid, direction),
        Of(Fixed(Method::kAb2, 5), direction),
        Of(Hypersolved(Method::kHeun, 2), direction, correction),
        Of(Hypersolved(Method::kLearned, 0), direction, Tables(direction, Coefficients::kMap)),
        Of(Hypersolved(Method::kLearned, 1), direction, Tables(direction, Coefficients::kScalar)),
        Of(Hypersolved(Method::kLearned, 3), direction, Tables(direction, Coefficients::kMap))};
  }

  static std::string Name(const PlannedSolve& solve) {
    return std::visit([](const auto& plan) { return PrintPlan({.choice = plan}); }, solve.plan);
  }

  // The solve without a derivative from rows and conditions moved along the directions.
  BatchResult Plain(PlannedSolve solve, const HostTensor& rows, const HostTensor& conditions) {
    solve.derivative = Derivative::kNone;
    solve.vector = solve.condition_vector = {};
    solve.condition = View(conditions);
    return Run(solve, rows);
  }

  BatchResult Vjp(PlannedSolve solve, const HostTensor& cotangent) {
    solve.derivative = Derivative::kVjp;
    solve.condition = View(conditions_);
    solve.vector = View(cotangent);
    return Run(solve, rows_);
  }

  // Compares the gradient of value(result, row) by every number of rows and conditions.
  template <class Value>
  void ExpectGradient(const PlannedSolve& solve, const BatchResult& found, const Value& value) {
    const auto compare = [&](const HostTensor& gradient, const HostTensor& base, bool of_rows) {
      ASSERT_EQ(gradient.shape, base.shape);
      const int64_t width = base.elements() / kRows;
      for (int64_t column = 0; column < width; ++column) {
        const HostTensor direction = Column(base, column);
        const HostTensor up = Moved(base, kStep, direction), down = Moved(base, -kStep, direction);
        const BatchResult above = Plain(solve, of_rows ? up : rows_, of_rows ? conditions_ : up);
        const BatchResult below =
            Plain(solve, of_rows ? down : rows_, of_rows ? conditions_ : down);
        for (int64_t row = 0; row < kRows; ++row) {
          const double wanted = (value(above, row) - value(below, row)) / (2 * kStep);
          EXPECT_NEAR(Number(gradient, row * width + column), wanted,
                      kClose * (1 + std::abs(wanted)));
        }
      }
    };
    compare(found.product, rows_, true);
    compare(found.condition_product, conditions_, false);
  }

  const std::shared_ptr<const Model> model_ =
      fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  const HostTensor rows_ = NormalRows(kRows, {2}, 5), conditions_ = NormalRows(kRows, {3}, 6);
  const HostTensor cotangent_ = NormalRows(kRows, {2}, 7);
};

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
      EXPECT_EQ(found.state.bytes, Plain(solve, rows_, conditions_).state.bytes);
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
      EXPECT_EQ(found.state.bytes, Plain(solve, rows_, conditions_).state.bytes);
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
  for (PlannedSolve solve : Solves(Direction::kDataToNoise)) {
    for (const LogDensity density : {LogDensity::kDivergence, LogDensity::kStepMap}) {
      if (density == LogDensity::kDivergence && solve.correction != nullptr) continue;
      SCOPED_TRACE(Name(solve));
      solve.log_density = density;
      solve.derivative = Derivative::kVjp;
      solve.condition = View(conditions_);
      const BatchResult found = Run(solve, rows_);
      ExpectGradient(solve, found, [](const BatchResult& end, int64_t row) {
        return Number(end.log_density, row);
      });
      EXPECT_EQ(found.log_density.bytes, Plain(solve, rows_, conditions_).log_density.bytes);
    }
  }
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

// Promise 1 for derivatives: the bits of a row among others are those that it has alone.
class GradientRowsTest : public EngineTest {
 protected:
  void ExpectIndependent(PlannedSolve solve, const Shape& row, const Shape& vector_row) {
    if (!on_cpu()) GTEST_SKIP() << "bits are promised on the CPU";
    const Shape& features = solve.model->spec().condition;
    constexpr int64_t kMany = 70;
    for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
      solve.tier = tier;
      const HostTensor rows = NormalRows(kMany, row, 1), vectors = NormalRows(kMany, vector_row, 2);
      const HostTensor conditions =
          features.empty() ? HostTensor() : NormalRows(kMany, features, 3);
      const auto part = [&](int64_t begin, int64_t count) {
        PlannedSolve of = solve;
        if (solve.log_density == LogDensity::kNone) of.vector = RowsOf(View(vectors), begin, count);
        of.condition = RowsOf(View(conditions), begin, count);
        const auto result =
            Solve(*runtime_, of, RowsOf(View(AsRows(rows, tier, of)), begin, count));
        EXPECT_TRUE(result.ok()) << result.status();
        return result.value();
      };
      const BatchResult all = part(0, kMany);
      for (const auto& [begin, count] : {std::pair{0, 1}, {37, 1}, {5, 2}, {30, 33}, {69, 1}}) {
        const BatchResult some = part(begin, count);
        for (int64_t i = 0; i < count; ++i) {
          EXPECT_TRUE(RowBytes(some.product, i) == RowBytes(all.product, begin + i))
              << TierName(tier) << " row " << begin + i << " among " << count;
          if (!features.empty()) {
            EXPECT_EQ(RowBytes(some.condition_product, i),
                      RowBytes(all.condition_product, begin + i));
          }
        }
      }
    }
  }

  // Inputs are F64 in tier double only.
  const HostTensor& AsRows(const HostTensor& rows, Tier tier, const PlannedSolve& solve) {
    if (solve.entry != Entry::kInput || tier == Tier::kDouble) return rows;
    floats_ = ConvertedTo(View(rows), Dtype::kF32);
    return floats_;
  }

  HostTensor floats_;
};

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
