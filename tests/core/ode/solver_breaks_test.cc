// Breaks: depths at which every step ends, since the field is not smooth there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/ode/solve_options.h"
#include "core/ode/solve_result.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"
#include "tests/testing/row_matrix.h"
#include "tests/testing/solve_rows.h"

namespace hyperserve {
namespace {

using testing::Problem;
using testing::RowMatrix;
using testing::RowMatrixSpace;

constexpr double kKink = 0.3;

// Smooth on either side of the kink.
void Kinked(int64_t row, double s, std::span<const double> z, std::span<double> dz) {
  dz[0] = (1.0 + static_cast<double>(row)) * z[0] * std::max(0.0, s - kKink);
}
double Truth() { return std::exp((1 - kKink) * (1 - kKink) / 2); }

SolveResult<RowMatrix> Solve(const Problem& problem, int64_t rows = 1) {
  RowMatrix z0{.dims = 1};
  for (int64_t row = 0; row < rows; ++row) {
    z0.row_ids.push_back(row);
    z0.values.push_back(1.0);
  }
  return testing::Solve(RowMatrixSpace(Kinked), problem, z0);
}

double Error(const Problem& problem) { return std::abs(Solve(problem).state.values[0] - Truth()); }

TEST(SolverBreaks, AFixedStepIsCutWhereItHoldsBreaks) {
  Problem cut{.tableau = TableauFor({.method = Method::kHeun}), .control = FixedSteps{.steps = 4}};
  cut.breaks = {0.3, 0.5, 0.6, 0.7};  // a half is the end of a step
  Problem listed = cut;
  listed.breaks = {};
  listed.control = FixedSteps{.steps = 7};
  listed.grid = {.kind = StepGrid::Kind::kListed, .shares = {0, 0.25, 0.3, 0.5, 0.6, 0.7, 0.75, 1}};
  const auto found = Solve(cut), wanted = Solve(listed);
  EXPECT_EQ(found.state.values, wanted.state.values);
  EXPECT_EQ(found.counts[0], wanted.counts[0]);
  EXPECT_EQ(found.counts[0].nfe, 14);
  cut.save_at = listed.save_at = {0.1, 0.3, 0.4, 1.0};
  const auto saved = Solve(cut), saved_listed = Solve(listed);
  for (size_t k = 0; k < 4; ++k) EXPECT_EQ(saved.saved[k].values, saved_listed.saved[k].values);
}

TEST(SolverBreaks, KeepTheOrderOfAMethod) {
  const auto error = [](int64_t steps, std::vector<double> breaks) {
    return Error({.tableau = TableauFor({.method = Method::kRk4}),
                  .control = FixedSteps{.steps = steps},
                  .breaks = std::move(breaks)});
  };
  EXPECT_NEAR(std::log2(error(8, {kKink}) / error(16, {kKink})), 4, 0.5);
  EXPECT_GT(error(16, {}), 100 * error(16, {kKink}));
}

TEST(SolverBreaks, ErrorControlStartsAnewThere) {
  Problem problem{.tableau = kDopri5Tableau,
                  .control = ErrorControl{.rtol = 1e-9, .atol = 1e-9},
                  .save_at = {kKink}};
  const auto without = Solve(problem);
  problem.breaks = {kKink};
  const auto with = Solve(problem);
  EXPECT_LE(with.counts[0].rejected, without.counts[0].rejected);
  EXPECT_LT(with.counts[0].nfe, without.counts[0].nfe);
  EXPECT_LT(std::abs(with.state.values[0] - Truth()), 1e-8);
  EXPECT_EQ(with.saved[0].values[0], 1.0);
  EXPECT_EQ(with.status[0], RowStatus::kConverged);
}

TEST(SolverBreaks, ARowAloneIsTheSameAmongOthers) {
  for (const StepControl& control : {StepControl(FixedSteps{.steps = 5}),
                                     StepControl(ErrorControl{.rtol = 1e-6, .atol = 1e-6})}) {
    Problem problem{.tableau = kDopri5Tableau, .control = control, .breaks = {0.1, kKink, 0.9}};
    const auto together = Solve(problem, 9);
    for (const int64_t row : {0, 4, 8}) {
      const RowMatrix start{.dims = 1, .values = {1.0}, .row_ids = {row}};
      const auto alone = testing::Solve(RowMatrixSpace(Kinked), problem, start);
      EXPECT_EQ(alone.state.values[0], together.state.values[static_cast<size_t>(row)]);
      EXPECT_EQ(alone.counts[0], together.counts[static_cast<size_t>(row)]);
    }
  }
}

TEST(SolverBreaks, LieInTheSpanInTheirOrder) {
  SolveOptions options{.tableau = kDopri5Tableau, .breaks = {0.5, 0.25}};
  EXPECT_THAT(std::string(ValidateSolve(options).message()),
              ::testing::HasSubstr("breaks 0.25 must lie in the span [0, 1] and above"));
  options.breaks = {1.5};
  EXPECT_FALSE(ValidateSolve(options).ok());
  options.breaks = {0, 0.5, 1};
  EXPECT_TRUE(ValidateSolve(options).ok());
}

}  // namespace
}  // namespace hyperserve
