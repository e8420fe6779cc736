// Derivatives of fixed plans on an engine, and central differences of the plan itself to compare
// them with.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_grid.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {

inline constexpr int64_t kRows = 5;
// The error of a central difference is about h^2 |f'''| / 6 + 1e-16 |f| / h.
inline constexpr double kStep = 3e-6, kClose = 1e-8;

// base + h direction.
inline HostTensor Moved(const HostTensor& base, double h, const HostTensor& direction) {
  HostTensor moved = base;
  for (size_t i = 0; i < moved.as<double>().size(); ++i) {
    moved.as<double>()[i] += h * direction.as<double>()[i];
  }
  return moved;
}

// Ones in column `column` of every row.
inline HostTensor Column(const HostTensor& like, int64_t column) {
  HostTensor ones = HostTensor::Zeros(Dtype::kF64, like.shape);
  const int64_t width = like.elements() / like.shape[0];
  for (int64_t row = 0; row < like.shape[0]; ++row) {
    ones.as<double>()[static_cast<size_t>(row * width + column)] = 1.0;
  }
  return ones;
}

inline double RowDot(const HostTensor& a, const HostTensor& b, int64_t row) {
  const int64_t width = a.elements() / a.shape[0];
  double sum = 0;
  for (int64_t i = row * width; i < (row + 1) * width; ++i) sum += Number(a, i) * Number(b, i);
  return sum;
}

class GradientTest : public EngineTest {
 protected:
  // A correction of this direction that reads z(s0) too.
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

  // On a GPU the steps of a plan without derivatives may be captured ones, which round differently.
  void ExpectSameStates(const HostTensor& a, const HostTensor& b) const {
    if (on_cpu()) {
      EXPECT_EQ(a.bytes, b.bytes);
      return;
    }
    ASSERT_EQ(a.shape, b.shape);
    for (int64_t i = 0; i < a.elements(); ++i) {
      EXPECT_NEAR(Number(a, i), Number(b, i), 1e-13 * (1 + std::abs(Number(b, i))));
    }
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

  // Of the plan's log-density of each kind that it has.
  void ExpectDensityGradients(PlannedSolve solve) {
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

  std::shared_ptr<const Model> model_ = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  const HostTensor rows_ = NormalRows(kRows, {2}, 5), cotangent_ = NormalRows(kRows, {2}, 7);
  HostTensor conditions_ = NormalRows(kRows, {3}, 6);
};

// Promise 1 for derivatives: the bits of a row among others are those that it has alone.
class GradientRowsTest : public EngineTest {
 protected:
  static constexpr int64_t kMany = 70;

  // Guidance, where the solve has some, is one for each of kMany rows.
  void ExpectIndependent(PlannedSolve solve, const Shape& row, const Shape& vector_row) {
    if (!on_cpu()) GTEST_SKIP() << "bits are promised on the CPU";
    Shape features = solve.model->spec().condition;
    if (!solve.knots.empty()) features.insert(features.begin(), std::ssize(solve.knots.depths));
    const TensorView guidance = solve.guidance;
    for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
      solve.tier = tier;
      const HostTensor rows = NormalRows(kMany, row, 1), vectors = NormalRows(kMany, vector_row, 2);
      const HostTensor conditions =
          features.empty() ? HostTensor() : NormalRows(kMany, features, 3);
      const auto part = [&](int64_t begin, int64_t count) {
        PlannedSolve of = solve;
        if (solve.log_density == LogDensity::kNone) of.vector = RowsOf(View(vectors), begin, count);
        of.condition = RowsOf(View(conditions), begin, count);
        if (!guidance.shape.empty()) of.guidance = RowsOf(guidance, begin, count);
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
          if (!features.empty() && solve.derivative == Derivative::kVjp) {
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

}  // namespace hyperserve
