// States at requested depths.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/ode/solve_result.h"
#include "core/ode/solver.h"
#include "core/ode/step.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/testing/row_matrix.h"
#include "tests/testing/solve_rows.h"

namespace hyperserve {
namespace {

using testing::CorrectedRowMatrixSpace;
using testing::Problem;
using testing::RowField;
using testing::RowMatrix;
using testing::RowMatrixSpace;

const RowField kWave = [](int64_t, double s, std::span<const double> z, std::span<double> dz) {
  dz[0] = z[0] * std::cos(s);
};
double Truth(double s) { return std::exp(std::sin(s)); }

SolveResult<RowMatrix> Solve(const Problem& problem) {
  return testing::Solve(RowMatrixSpace(kWave), problem, RowMatrix::Of({{1.0}}));
}

// The largest error of the states saved at a quarter, a half and three quarters of every step.
double WorstBetween(const Tableau& tableau, int64_t steps) {
  Problem options{.tableau = tableau, .control = FixedSteps{.steps = steps}};
  for (int64_t k = 0; k < steps; ++k) {
    for (const double theta : {0.25, 0.5, 0.75}) {
      options.save_at.push_back((static_cast<double>(k) + theta) / static_cast<double>(steps));
    }
  }
  const auto result = Solve(options);
  double worst = 0.0;
  for (size_t i = 0; i < options.save_at.size(); ++i) {
    EXPECT_TRUE(result.reached[i][0]);
    worst = std::max(worst, std::abs(result.saved[i].row(0)[0] - Truth(options.save_at[i])));
  }
  return worst;
}

TEST(SolverSave, StatesBetweenStepsHaveTheOrderOfMethodAndInterpolant) {
  for (const MethodName& name : kMethodNames) {
    const Tableau tableau = TableauFor({.method = name.method, .alpha = 0.75});
    // Within a step, cubic Hermite errs by eps^4 and the interpolants of order 4 by eps^5.
    const int expected = std::min(tableau.order, tableau.has_dense() ? 5 : 4);
    const int64_t steps = 16;
    const double coarse = WorstBetween(tableau, steps), fine = WorstBetween(tableau, 2 * steps);
    EXPECT_GT(fine, 1e-12) << "rounding would blur the order";
    EXPECT_NEAR(std::log2(coarse / fine), expected, 0.3) << name.name;
  }
}

TEST(SolverSave, StatesOfAControlledSolveAreAsGoodAsItsTolerance) {
  Problem options{.tableau = kDopri5Tableau, .s1 = 10.0};
  for (int k = 1; k < 100; ++k) options.save_at.push_back(0.1 * k);
  for (const Method method : {Method::kBosh3, Method::kTsit5, Method::kDopri5}) {
    options.tableau = TableauFor({.method = method});
    options.control = ErrorControl{.rtol = 1e-7, .atol = 1e-7};
    const auto result = Solve(options);
    for (size_t i = 0; i < options.save_at.size(); ++i) {
      EXPECT_NEAR(result.saved[i].row(0)[0], Truth(options.save_at[i]), 5e-6)
          << NameOf(method).name << " at " << options.save_at[i];
    }
  }
}

TEST(SolverSave, SavingChangesNeitherTheSolveNorItsStepsAndCountsItsSlopes) {
  struct Case {
    Problem options;
    int64_t more;  // evaluations for the depths below
  };
  const Case cases[] = {
      // The slope at the end of a step is the first stage of the next: only the last step pays.
      {{.tableau = kRk4Tableau, .control = FixedSteps{.steps = 4}}, 1},
      {{.tableau = kDopri5Tableau, .control = FixedSteps{.steps = 4}}, 1},
      {{.tableau = kDopri5Tableau, .control = ErrorControl{}}, 0},
      {{.tableau = TableauFor({.method = Method::kHeunEuler}), .control = ErrorControl{}}, 1}};
  for (const Case& c : cases) {
    const auto plain = Solve(c.options);
    Problem options = c.options;
    options.save_at = {0.1, 0.12, 0.4, 0.999999};
    const auto saving = Solve(options);
    EXPECT_EQ(saving.state.values, plain.state.values);
    EXPECT_EQ(saving.counts[0].nfe, plain.counts[0].nfe + c.more);
    EXPECT_EQ(saving.counts[0].accepted, plain.counts[0].accepted);
  }
}

// Between two finite ends (1.75e308 and 0): the slopes are near the largest double, and the cubic
// at 0.1 is 1.86e308.
TEST(SolverSave, ASavedStateThatIsNotFiniteMakesItsRowSaySo) {
  const RowField steep = [](int64_t row, double s, std::span<const double>, std::span<double> dz) {
    dz[0] = row == 0 ? (s < 0.5 ? 1.0 : -1.0) * 1.75e308 : 1.0;
  };
  const Problem problem{.tableau = TableauFor({.method = Method::kMidpoint}),
                        .control = FixedSteps{.steps = 1},
                        .save_at = {0.1, 0.9}};
  const auto result =
      testing::Solve(RowMatrixSpace(steep), problem, RowMatrix::Of({{1.75e308}, {0.0}}));
  EXPECT_EQ(result.state.row(0)[0], 1.75e308);
  EXPECT_EQ(result.depth[0], 0.0);
  EXPECT_FALSE(result.reached[0][0]);
  EXPECT_EQ(result.status[0], RowStatus::kNonFinite);
  EXPECT_EQ(result.status[1], RowStatus::kConverged);
}

TEST(SolverSave, EndsOfStepsAreTheStatesThemselvesAndCostNothing) {
  const Problem options{.tableau = kRk4Tableau,
                        .control = FixedSteps{.steps = 10},
                        .save_at = {0.0, 0.1, 0.3, 0.7, 0.1 * 8, 1.0}};
  const auto result = Solve(options);
  EXPECT_EQ(result.counts[0].nfe, 40);
  EXPECT_EQ(result.saved[0].row(0)[0], 1.0);
  EXPECT_EQ(result.saved[5].values, result.state.values);
  // The same ten steps by hand.
  const RowMatrixSpace space(kWave);
  RowMatrix z = RowMatrix::Of({{1.0}});
  std::vector<double> ends;
  for (int k = 0; k < 10; ++k) {
    z = ClassicalStep(space, kRk4Tableau, {k / 10.0}, {0.1}, z).z_next;
    ends.push_back(z.row(0)[0]);
  }
  EXPECT_EQ(result.saved[1].row(0)[0], ends[0]);
  EXPECT_EQ(result.saved[2].row(0)[0], ends[2]);
  EXPECT_EQ(result.saved[3].row(0)[0], ends[6]);
  EXPECT_EQ(result.saved[4].row(0)[0], ends[7]);
  for (size_t k = 0; k < options.save_at.size(); ++k) EXPECT_TRUE(result.reached[k][0]);
}

TEST(SolverSave, ASpanWithoutLengthIsItsStartAndCostsNothing) {
  for (const StepControl& control : {StepControl(FixedSteps{.steps = 3}),
                                     StepControl(ErrorControl{.rtol = 1e-3, .atol = 1e-3})}) {
    Problem options{.tableau = kDopri5Tableau, .control = control, .s0 = 0.5, .s1 = 0.5};
    options.save_at = {0.5};
    const auto result = Solve(options);
    EXPECT_EQ(result.status[0], RowStatus::kConverged);
    EXPECT_EQ(result.state.row(0)[0], 1.0);
    EXPECT_EQ(result.saved[0].row(0)[0], 1.0);
    EXPECT_TRUE(result.reached[0][0]);
    EXPECT_EQ(result.depth[0], 0.5);
    EXPECT_EQ(result.counts[0].nfe, 0);
  }
}

// A step looks at the depths within it, not at all: rows that stand apart still save theirs.
TEST(SolverSave, ManyDepthsAreAllReached) {
  Problem options{.tableau = kDopri5Tableau, .control = FixedSteps{.steps = 7}};
  for (int k = 0; k <= 1000; ++k) options.save_at.push_back(k / 1000.0);
  const auto result = Solve(options);
  for (size_t k = 0; k < options.save_at.size(); ++k) {
    EXPECT_TRUE(result.reached[k][0]) << k;
    EXPECT_NEAR(result.saved[k].row(0)[0], Truth(options.save_at[k]), 1e-4) << k;
  }
}

TEST(SolverSave, TheEndOfAControlledSolveIsItsState) {
  const auto result = Solve(
      {.tableau = kDopri5Tableau, .control = ErrorControl{}, .s1 = 3.0, .save_at = {0.0, 3.0}});
  EXPECT_EQ(result.saved[0].row(0)[0], 1.0);
  EXPECT_EQ(result.saved[1].values, result.state.values);
}

TEST(SolverSave, CorrectedStepsInterpolateTheirOwnEnds) {
  // The correction makes Euler exact on z' = -z; Hermite through exact ends errs by eps^4.
  const CorrectedRowMatrixSpace space(
      [](int64_t, double, std::span<const double> z, std::span<double> dz) { dz[0] = -z[0]; },
      [](const CorrectedRowMatrixSpace::Inputs& in, std::span<double> g) {
        g[0] = in.z[0] * (std::exp(-in.eps) - 1.0 + in.eps) / (in.eps * in.eps);
      });
  const auto worst = [&](int64_t steps) {
    const Problem options{.tableau = kEulerTableau,
                          .control = FixedSteps{.steps = steps},
                          .hypersolved = true,
                          .save_at = {0.5 / static_cast<double>(steps), 0.3, 0.61803}};
    const auto result = testing::Solve(space, options, RowMatrix::Of({{1.0}}));
    EXPECT_NEAR(result.state.row(0)[0], std::exp(-1.0), 1e-14);
    EXPECT_EQ(result.counts[0].correction_evaluations, steps);
    double error = 0.0;
    for (size_t k = 0; k < options.save_at.size(); ++k) {
      error = std::max(error, std::abs(result.saved[k].row(0)[0] - std::exp(-options.save_at[k])));
    }
    return error;
  };
  EXPECT_NEAR(std::log2(worst(16) / worst(32)), 4.0, 0.3);
}

}  // namespace
}  // namespace hyperserve
