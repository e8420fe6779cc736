// Rows that join and leave while others are under way: a row's numbers and counts are those it
// would have alone.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "core/ode/solve_result.h"
#include "core/ode/solver.h"
#include "core/ode/space.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/testing/row_matrix.h"
#include "tests/testing/solve_rows.h"

namespace hyperserve {
namespace {

using testing::Admit;
using testing::CorrectedRowMatrixSpace;
using testing::OptionsOf;
using testing::Problem;
using testing::RowMatrix;

// Van der Pol oscillators, ever stiffer; every ninth row breaks down half way.
void MixedField(int64_t row, double s, std::span<const double> z, std::span<double> dz) {
  const double mu = 0.4 * static_cast<double>(row % 20);
  dz[0] = z[1];
  dz[1] = mu * (1 - z[0] * z[0]) * z[1] - z[0];
  if (row % 9 == 8) dz[1] += std::sqrt(0.5 - s);
}

RowMatrix StartOf(int64_t row) {
  return {.dims = 2, .values = {2.0 - 0.01 * static_cast<double>(row), 0.3}, .row_ids = {row}};
}

// All results of one row.
struct Answer {
  std::vector<double> state, saved;
  std::vector<bool> reached;
  RowStatus status = RowStatus::kConverged;
  double depth = 0.0;
  RowCounts counts;
  bool operator==(const Answer&) const = default;
};

std::map<int64_t, Answer> AnswersOf(const std::vector<SolveResult<RowMatrix>>& results) {
  std::map<int64_t, Answer> answers;
  for (const SolveResult<RowMatrix>& result : results) {
    for (size_t i = 0; i < result.rows.size(); ++i) {
      Answer answer{.state = {result.state.row(i).begin(), result.state.row(i).end()},
                    .saved = {},
                    .reached = {},
                    .status = result.status[i],
                    .depth = result.depth[i],
                    .counts = result.counts[i]};
      for (size_t k = 0; k < result.saved.size(); ++k) {
        const auto saved = result.saved[k].row(i);
        answer.saved.insert(answer.saved.end(), saved.begin(), saved.end());
        answer.reached.push_back(result.reached[k][i]);
      }
      EXPECT_TRUE(answers.emplace(result.rows[i], std::move(answer)).second) << "told twice";
    }
  }
  return answers;
}

class SolverJoinsTest : public ::testing::Test {
 protected:
  // One row under one control, asked for many times.
  Answer Alone(const Problem& problem, int64_t row) {
    return AnswersOf({testing::Solve(space_, problem, StartOf(row))}).at(0);
  }

  // Admits the problems' rows one after the other at random moments, drops some, and compares.
  void ExpectAsAlone(const std::vector<Problem>& problems, uint32_t seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return static_cast<int64_t>(random() % n); };
    BatchSolver<CorrectedRowMatrixSpace> solver(&space_, OptionsOf(problems[0]));
    std::map<int64_t, std::pair<size_t, int64_t>> asked;  // number -> problem, row
    std::vector<SolveResult<RowMatrix>> results;
    for (int admissions = 0; admissions < 12 || !solver.done();) {
      if (admissions < 12 && (solver.done() || random() % 4 == 0)) {
        const size_t problem = static_cast<size_t>(below(problems.size()));
        const int64_t row = below(36);
        asked[Admit(solver, space_, problems[problem].control, StartOf(row))] = {problem, row};
        ++admissions;
      }
      if (random() % 16 == 0) {
        const int64_t dropped = below(asked.size() + 1);
        solver.Drop(dropped, 1);
        asked.erase(dropped);
      }
      solver.Advance(1 + below(5));
      for (auto& result : solver.TakeFinished()) results.push_back(std::move(result));
    }
    const std::map<int64_t, Answer> answers = AnswersOf(results);
    for (const auto& [number, what] : asked) {
      const auto found = answers.find(number);
      ASSERT_NE(found, answers.end()) << "row " << number << " of seed " << seed;
      EXPECT_EQ(found->second, Alone(problems[what.first], what.second))
          << "row " << number << " of seed " << seed;
    }
  }

  const CorrectedRowMatrixSpace space_{
      MixedField, [](const CorrectedRowMatrixSpace::Inputs& in, std::span<double> g) {
        g[0] = 0.1 * in.z[0] - 0.2 * in.z_first[1];
        g[1] = in.slope_1[0] * in.eps;
      }};
};

TEST_F(SolverJoinsTest, FixedStepsOfAnyNumberShareEvaluations) {
  for (const MethodName& name : kMethodNames) {
    std::vector<Problem> problems;
    for (const int64_t steps : {1, 2, 3, 7, 12}) {
      problems.push_back({.tableau = TableauFor({.method = name.method, .alpha = 0.75}),
                          .control = FixedSteps{.steps = steps},
                          .save_at = {0.0, 0.2, 0.25, 0.77, 1.0}});
    }
    for (uint32_t seed = 0; seed < 100; ++seed) ExpectAsAlone(problems, seed);
    for (Problem& problem : problems) problem.save_at.clear();
    for (uint32_t seed = 100; seed < 200; ++seed) ExpectAsAlone(problems, seed);
  }
}

TEST_F(SolverJoinsTest, CorrectedStepsKeepTheirOwnStart) {
  for (const Tableau& tableau : {kEulerTableau, TableauFor({.method = Method::kHeun})}) {
    std::vector<Problem> problems;
    for (const int64_t steps : {1, 2, 5, 8}) {
      problems.push_back({.tableau = tableau,
                          .control = FixedSteps{.steps = steps},
                          .hypersolved = true,
                          .save_at = {0.3, 0.9}});
    }
    for (uint32_t seed = 0; seed < 300; ++seed) ExpectAsAlone(problems, seed);
  }
}

TEST_F(SolverJoinsTest, EachRowHasItsOwnTolerancesAndLimit) {
  for (const Tableau& tableau :
       {TableauFor({.method = Method::kHeunEuler}), kBosh3Tableau, kTsit5Tableau, kDopri5Tableau}) {
    std::vector<Problem> problems;
    for (const ErrorControl& control :
         {ErrorControl{.rtol = 1e-3, .atol = 1e-3}, ErrorControl{.rtol = 1e-6, .atol = 1e-8},
          ErrorControl{.rtol = 1e-4, .atol = 1e-4, .max_steps = 5}}) {
      problems.push_back({.tableau = tableau, .control = control, .save_at = {0.0, 0.4, 1.0}});
    }
    for (uint32_t seed = 0; seed < 100; ++seed) ExpectAsAlone(problems, seed);
  }
}

TEST_F(SolverJoinsTest, ThreeRowsShareOneEvaluation) {
  int64_t batches = 0;
  struct Counting : CorrectedRowMatrixSpace {
    using CorrectedRowMatrixSpace::CorrectedRowMatrixSpace;
    int64_t* batches = nullptr;
    RowMatrix Field(const PerRow& s, const RowMatrix& z) const {
      ++*batches;
      return CorrectedRowMatrixSpace::Field(s, z);
    }
  };
  Counting counting(MixedField, nullptr);
  counting.batches = &batches;
  BatchSolver<Counting> solver(&counting, {.tableau = kRk4Tableau});
  Admit(solver, counting, FixedSteps{.steps = 3}, StartOf(1));
  EXPECT_FALSE(solver.Advance(5));  // one step and a quarter
  Admit(solver, counting, FixedSteps{.steps = 1}, StartOf(2));
  Admit(solver, counting, FixedSteps{.steps = 2}, StartOf(3));
  EXPECT_FALSE(solver.Advance(3));  // the step that they came in: they wait for its end
  EXPECT_TRUE(solver.TakeFinished().empty());
  EXPECT_FALSE(solver.Advance(4));
  EXPECT_EQ(solver.TakeFinished().at(0).rows, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(solver.Advance(4));
  EXPECT_EQ(solver.TakeFinished().at(0).rows, std::vector<int64_t>{2});
  EXPECT_EQ(batches, 4 + 4 + 4 + 4);
}

}  // namespace
}  // namespace hyperserve
