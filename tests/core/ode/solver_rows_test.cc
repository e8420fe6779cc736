// Rows that end differently, and rows that must not notice each other.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/ode/solve_result.h"
#include "core/ode/solver.h"
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

SolveResult<RowMatrix> Solve(const RowField& field, const Problem& problem, RowMatrix z0) {
  return testing::Solve(RowMatrixSpace(field), problem, std::move(z0));
}

Problem Controlled(const Tableau& tableau, int64_t max_steps = 10000) {
  return {.tableau = tableau,
          .control = ErrorControl{.rtol = 1e-6, .atol = 1e-6, .max_steps = max_steps}};
}

std::vector<Tableau> Pairs() {
  return {TableauFor({.method = Method::kHeunEuler}), kBosh3Tableau, kTsit5Tableau, kDopri5Tableau};
}

// Van der Pol oscillators, ever stiffer; every seventh row breaks down half way.
void MixedField(int64_t row, double s, std::span<const double> z, std::span<double> dz) {
  const double mu = 0.5 * static_cast<double>(row);
  dz[0] = z[1];
  dz[1] = mu * (1 - z[0] * z[0]) * z[1] - z[0];
  if (row % 7 == 6) dz[1] += std::sqrt(0.5 - s);
}

TEST(SolverRows, ARowAloneIsTheSameAmongHarderRows) {
  std::vector<Problem> all;
  for (const Tableau& tableau : Pairs()) all.push_back(Controlled(tableau, 300));
  for (const MethodName& name : kMethodNames) {
    all.push_back({.tableau = TableauFor({.method = name.method, .alpha = 0.75}),
                   .control = FixedSteps{.steps = 12}});
  }
  for (Problem options : all) {
    options.save_at = {0.0, 0.2, 0.77, 1.0};
    RowMatrix z0{.dims = 2};
    for (int64_t row = 0; row < 64; ++row) {
      z0.row_ids.push_back(row);
      z0.values.insert(z0.values.end(), {2.0 - 0.01 * static_cast<double>(row), 0.3});
    }
    const auto together = Solve(MixedField, options, z0);
    for (const size_t row : {0u, 1u, 5u, 6u, 13u, 40u, 63u}) {
      const RowMatrix alone_start{.dims = 2,
                                  .values = {z0.row(row)[0], z0.row(row)[1]},
                                  .row_ids = {static_cast<int64_t>(row)}};
      const auto alone = Solve(MixedField, options, alone_start);
      EXPECT_EQ(alone.status[0], together.status[row]);
      EXPECT_EQ(alone.depth[0], together.depth[row]);
      EXPECT_EQ(alone.counts[0], together.counts[row]);
      for (size_t d = 0; d < 2; ++d) {
        EXPECT_EQ(alone.state.row(0)[d], together.state.row(row)[d]) << "row " << row;
        for (size_t k = 0; k < options.save_at.size(); ++k) {
          EXPECT_EQ(alone.saved[k].row(0)[d], together.saved[k].row(row)[d]) << "row " << row;
        }
      }
      for (size_t k = 0; k < options.save_at.size(); ++k) {
        EXPECT_EQ(alone.reached[k][0], together.reached[k][row]) << "row " << row;
      }
    }
    // The rows did end differently, where the pair is good enough to get anywhere.
    if (options.tableau.method != Method::kDopri5) continue;
    EXPECT_EQ(together.status[13], RowStatus::kNonFinite);
    EXPECT_EQ(together.status[0], RowStatus::kConverged);
  }
}

TEST(SolverRows, FinishedRowsCostNothing) {
  // The row of id 0 is easy; the field counts how often it is asked for it.
  int64_t easy_calls = 0;
  const auto result = Solve(
      [&](int64_t row, double s, std::span<const double> z, std::span<double> dz) {
        easy_calls += row == 0 ? 1 : 0;
        dz[0] = row == 0 ? -z[0] : 50.0 * std::cos(50.0 * s);
      },
      Controlled(kDopri5Tableau), RowMatrix::Of({{1.0}, {1.0}}));
  EXPECT_EQ(easy_calls, result.counts[0].nfe);
  EXPECT_GT(result.counts[1].nfe, 2 * result.counts[0].nfe);
}

TEST(SolverRows, TheStepLimitEndsARow) {
  for (const Tableau& tableau : Pairs()) {
    const auto result =
        Solve([](int64_t row, double s, std::span<const double>,
                 std::span<double> dz) { dz[0] = row == 0 ? 0.0 : std::cos(2000.0 * s); },
              Controlled(tableau, 12), RowMatrix::Of({{1.0}, {1.0}}));
    EXPECT_EQ(result.status[0], RowStatus::kConverged);
    EXPECT_EQ(result.status[1], RowStatus::kStepLimit);
    EXPECT_EQ(result.counts[1].accepted + result.counts[1].rejected, 12);
    EXPECT_GT(result.depth[1], 0.0);
    EXPECT_LT(result.depth[1], 1.0);
    EXPECT_NEAR(result.state.row(1)[0], 1.0 + std::sin(2000.0 * result.depth[1]) / 2000.0, 1e-4);
  }
}

TEST(SolverRows, ReachingTheEndWithTheLastStepAllowedIsConverged) {
  const RowField field = [](int64_t, double s, std::span<const double>, std::span<double> dz) {
    dz[0] = std::cos(10.0 * s);
  };
  const auto free = Solve(field, Controlled(kDopri5Tableau), RowMatrix::Of({{1.0}}));
  const int64_t needed = free.counts[0].accepted + free.counts[0].rejected;
  const auto status = [&](int64_t max_steps) {
    return Solve(field, Controlled(kDopri5Tableau, max_steps), RowMatrix::Of({{1.0}})).status[0];
  };
  EXPECT_EQ(status(needed), RowStatus::kConverged);
  EXPECT_EQ(status(needed - 1), RowStatus::kStepLimit);
}

TEST(SolverRows, AStateThatOverflowsIsNonFiniteSoon) {
  for (const Tableau& tableau : Pairs()) {
    const auto result = Solve([](int64_t, double, std::span<const double> z,
                                 std::span<double> dz) { dz[0] = 1000.0 * z[0]; },
                              Controlled(tableau, 1 << 30), RowMatrix::Of({{1.0}}));
    EXPECT_EQ(result.status[0], RowStatus::kNonFinite);
    EXPECT_LT(result.counts[0].rejected, 200);
    EXPECT_GT(result.state.row(0)[0], 1e300);
  }
}

// A rotation, far from zero: the depth is rounded to 1e-7 there.
TEST(SolverRows, AStepIsAsLongAsTheDepthMoves) {
  const RowField rotation = [](int64_t, double, std::span<const double> z, std::span<double> dz) {
    dz[0] = z[1];
    dz[1] = -z[0];
  };
  Problem problem{.tableau = kTsit5Tableau,
                  .control = ErrorControl{.rtol = 1e-12, .atol = 1e-12, .max_steps = 10000}};
  problem.s0 = 1e9;
  problem.s1 = 1e9 + 1;
  const auto result = Solve(rotation, problem, RowMatrix::Of({{1.0, 0.0}}));
  EXPECT_EQ(result.status[0], RowStatus::kConverged);
  EXPECT_NEAR(result.state.row(0)[0], std::cos(1.0), 1e-11);
  EXPECT_NEAR(result.state.row(0)[1], -std::sin(1.0), 1e-11);
}

TEST(SolverRows, NoiseUnderflows) {
  // A field without any continuity: no step is ever small enough.
  const RowField noise = [](int64_t, double s, std::span<const double> z, std::span<double> dz) {
    dz[0] = 1e12 * std::sin(1e17 * s + 1e9 * z[0]);
  };
  for (const Tableau& tableau : Pairs()) {
    Problem options = Controlled(tableau);
    options.s0 = 1.0;
    options.s1 = 2.0;
    const auto result = Solve(noise, options, RowMatrix::Of({{1.0}}));
    EXPECT_EQ(result.status[0], RowStatus::kStepUnderflow) << NameOf(tableau.method).name;
    EXPECT_LT(result.depth[0], 2.0);
    EXPECT_LT(result.counts[0].rejected, 200);
  }
}

TEST(SolverRows, ToleranceThatNoStepReachesUnderflows) {
  const RowField rotation = [](int64_t, double, std::span<const double> z, std::span<double> dz) {
    dz[0] = z[1];
    dz[1] = -z[0];
  };
  for (const double tolerance : {1e-100, 1e-300}) {  // the latter: the norm overflows
    Problem options = Controlled(kDopri5Tableau);
    options.control = ErrorControl{.rtol = tolerance, .atol = tolerance, .max_steps = 10000};
    const auto result = Solve(rotation, options, RowMatrix::Of({{1.0, 0.0}}));
    EXPECT_EQ(result.status[0], RowStatus::kStepUnderflow) << tolerance;
  }
}

TEST(SolverRows, AFieldThatEndsLeavesTheLastFiniteState) {
  const RowField field = [](int64_t row, double s, std::span<const double>, std::span<double> dz) {
    dz[0] = row == 1 && s > 0.5 ? std::nan("") : 1.0;
  };
  for (const Tableau& tableau : Pairs()) {
    Problem options = Controlled(tableau);
    options.save_at = {0.25, 0.75};
    const auto result = Solve(field, options, RowMatrix::Of({{1.0}, {1.0}, {2.0}}));
    EXPECT_EQ(result.status[0], RowStatus::kConverged);
    EXPECT_EQ(result.status[2], RowStatus::kConverged);
    EXPECT_EQ(result.status[1], RowStatus::kNonFinite) << NameOf(tableau.method).name;
    EXPECT_LE(result.depth[1], 0.5 + 1e-12);
    EXPECT_NEAR(result.state.row(1)[0], 1.0 + result.depth[1], 1e-12);
    EXPECT_TRUE(result.reached[1][0] && result.reached[1][2]);
    EXPECT_FALSE(result.reached[1][1]);
    EXPECT_NEAR(result.state.row(2)[0], 3.0, 1e-12);
  }
}

TEST(SolverRows, AFieldThatNeverBeginsIsNonFinite) {
  const RowField field = [](int64_t row, double, std::span<const double> z, std::span<double> dz) {
    dz[0] = row == 0 ? std::numeric_limits<double>::infinity() : z[0];
  };
  const auto result = Solve(field, Controlled(kDopri5Tableau), RowMatrix::Of({{1.0}, {1.0}}));
  EXPECT_EQ(result.status[0], RowStatus::kNonFinite);
  EXPECT_EQ(result.counts[0], RowCounts{.nfe = 1});
  EXPECT_EQ(result.state.row(0)[0], 1.0);
  EXPECT_EQ(result.status[1], RowStatus::kConverged);
}

TEST(SolverRows, ARowKeepsItsOwnStartWhenOthersLeave) {
  // Rows 0 and 1 break down at their first step; g sees the start of the row it corrects.
  const CorrectedRowMatrixSpace space(
      [](int64_t row, double, std::span<const double> z, std::span<double> dz) {
        dz[0] = row < 2 ? std::nan("") : z[0];
      },
      [](const CorrectedRowMatrixSpace::Inputs& in, std::span<double> g) { g[0] = in.z_first[0]; });
  const auto result = testing::Solve(
      space, {.tableau = kEulerTableau, .control = FixedSteps{.steps = 2}, .hypersolved = true},
      RowMatrix::Of({{1.0}, {2.0}, {4.0}}));
  EXPECT_EQ(result.status[1], RowStatus::kNonFinite);
  // 4 (1 + 1/2) + 4/4 = 7; 7 (1 + 1/2) + 4/4.
  EXPECT_EQ(result.state.row(2)[0], 11.5);
}

TEST(SolverRows, FixedStepsKeepTheLastFiniteState) {
  // z' = z^2 from 8 overflows within a few steps of 1/8; from 0.1 it does not.
  const RowField square = [](int64_t, double, std::span<const double> z, std::span<double> dz) {
    dz[0] = z[0] * z[0];
  };
  const Problem options = {
      .tableau = kEulerTableau, .control = FixedSteps{.steps = 64}, .s1 = 8.0, .save_at = {7.0}};
  const auto result = Solve(square, options, RowMatrix::Of({{8.0}, {0.1}, {8.0}}));
  double z = 8.0, last = z;
  int64_t steps = 0;
  for (; std::isfinite(z); ++steps) {
    last = z;
    z += 0.125 * z * z;
  }
  for (const size_t row : {0u, 2u}) {
    EXPECT_EQ(result.status[row], RowStatus::kNonFinite);
    EXPECT_EQ(result.state.row(row)[0], last);
    EXPECT_EQ(result.depth[row], 0.125 * static_cast<double>(steps - 1));
    EXPECT_EQ(result.counts[row], (RowCounts{.nfe = steps, .accepted = steps - 1}));
    EXPECT_FALSE(result.reached[0][row]);
  }
  EXPECT_EQ(result.status[1], RowStatus::kConverged);
  EXPECT_EQ(result.counts[1].accepted, 64);
  EXPECT_TRUE(result.reached[0][1]);
}

}  // namespace
}  // namespace hyperserve
