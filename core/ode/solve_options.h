// What a BatchSolver is asked to do.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/ode/tableau.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// What all rows of a solver have in common.
struct SolveOptions {
  Tableau tableau;
  Stepping stepping = Stepping::kFixed;
  bool hypersolved = false;  // adds the space's correction g: fixed steps over a CorrectedSpace
  double s0 = 0.0;
  double s1 = 1.0;  // above s0: who wants to go backwards solves the reflected field
  std::vector<double> save_at = {};  // strictly increasing, within [s0, s1]
};

// kInvalidArgument says which option is wrong and what would be right.
absl::Status ValidateSolve(const SolveOptions& options);

// Rows that are admitted together and share a control of the solver's stepping.
struct Cohort {
  int64_t rows = 0;
  StepControl control;
};

}  // namespace hyperserve
