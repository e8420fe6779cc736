// Where the next step of a row ends: on the grid of its fixed plan, at a break, at the end of the
// span. Pure; for BatchSolver and PlanTape.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/ode/controller.h"
#include "core/ode/rows.h"
#include "core/ode/solve_options.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// Depths that differ by less are the same depth, computed in two ways.
inline double DepthSlack(const SolveOptions& options) {
  return 4.0 * std::numeric_limits<double>::epsilon() *
         std::max(std::abs(options.s0), std::abs(options.s1));
}

// Where the row's next fixed step ends on the grid of its plan.
inline double GridDepth(const SolveOptions& options, const Row& row) {
  return DepthOfStep(options, row.step + 1, std::get<FixedSteps>(row.control).steps);
}

// The first break after depth s; s1 where there is none.
inline double NextBreak(const SolveOptions& options, double s) {
  const auto next =
      std::upper_bound(options.breaks.begin(), options.breaks.end(), s + DepthSlack(options));
  return next == options.breaks.end() ? options.s1 : *next;
}

// The next step of a row: a fixed one to the end of its grid step, one under error control as long
// as the row wants it; either is cut at the next break.
inline NextStep NextStepOf(const SolveOptions& options, const Row& row) {
  const double next_break = NextBreak(options, row.s);
  if (options.stepping == Stepping::kErrorControlled) {
    return ClampStep(row.s, row.eps, next_break);
  }
  const double on_grid = GridDepth(options, row);
  const bool cut = next_break < on_grid - DepthSlack(options);
  return StepTo(row.s, cut ? next_break : on_grid, options.s1);
}

}  // namespace hyperserve
