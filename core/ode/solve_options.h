// The task of a BatchSolver.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/ode/tableau.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"

namespace hyperserve {

// What all rows of one solver have in common.
struct SolveOptions {
  Tableau tableau;
  Stepping stepping = Stepping::kFixed;
  bool hypersolved = false;  // add the space's correction g: fixed steps over a CorrectedSpace
  StepGrid grid = {};        // of fixed steps: where they end
  double s0 = 0.0;
  double s1 = 1.0;                   // at least s0; a solve backwards is one of the reflected field
  std::vector<double> save_at = {};  // strictly increasing, within [s0, s1]
  // Depths at which a step of every row ends, and at which error control starts anew, since f is
  // not smooth there. Strictly increasing, within [s0, s1]. A step of a fixed plan that holds some
  // is cut there, so a row makes up to so many more than its K.
  std::vector<double> breaks = {};
};

// kInvalidArgument names the wrong option and its limit: a span that is not finite or runs
// backwards, save_at or breaks outside the span or not increasing, and error control with a
// correction or without an embedded pair. Pure.
absl::Status ValidateSolve(const SolveOptions& options);

// Where fixed step number `step` of `steps` begins: s0 for step 0, s1 for the last one's end. From
// the ends of the span, so that rounding errors do not add up. Precondition: 0 <= step <= steps.
double DepthOfStep(const SolveOptions& options, int64_t step, int64_t steps);

// Rows that are admitted together and have the same step control.
struct Cohort {
  int64_t rows = 0;
  StepControl control;
};

}  // namespace hyperserve
