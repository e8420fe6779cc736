// A whole solve in one call, for tests of the solvers: one cohort, from start to end.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "core/ode/solve_options.h"
#include "core/ode/solve_result.h"
#include "core/ode/solver.h"
#include "core/ode/tableau.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"

namespace hyperserve::testing {

struct Problem {
  Tableau tableau;
  StepControl control;
  bool hypersolved = false;
  double s0 = 0.0;
  double s1 = 1.0;
  std::vector<double> save_at = {};
  StepGrid grid = {};
  std::vector<double> breaks = {};
};

inline SolveOptions OptionsOf(const Problem& problem) {
  return {.tableau = problem.tableau,
          .stepping = SteppingOf(problem.control),
          .hypersolved = problem.hypersolved,
          .grid = problem.grid,
          .s0 = problem.s0,
          .s1 = problem.s1,
          .save_at = problem.save_at,
          .breaks = problem.breaks};
}

template <class Space>
int64_t Admit(BatchSolver<Space>& solver, const Space& space, const StepControl& control,
              typename Space::State z0) {
  const Cohort cohort{.rows = space.Rows(z0), .control = control};
  return solver.Admit(std::move(z0), {&cohort, 1});
}

template <class Space>
SolveResult<typename Space::State> Solve(const Space& space, const Problem& problem,
                                         typename Space::State z0) {
  BatchSolver<Space> solver(&space, OptionsOf(problem));
  Admit(solver, space, problem.control, std::move(z0));
  EXPECT_TRUE(solver.Advance(std::numeric_limits<int64_t>::max()));
  return InOrder(space, solver.TakeFinished());
}

}  // namespace hyperserve::testing
