// What a BatchSolver is asked to do, and what it returns.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "core/ode/space.h"
#include "core/ode/tableau.h"
#include "core/plan/row_status.h"

namespace hyperserve {

// Equal steps of (s1 - s0) / steps, with the space's correction g or without.
struct FixedSteps {
  int64_t steps = 1;
  bool hypersolved = false;  // needs a CorrectedSpace
};

// Error-controlled steps, row by row.
struct ErrorControl {
  double rtol = 1e-5;
  double atol = 1e-5;
  int64_t max_steps = 10000;  // of one row, accepted and rejected
};

struct SolveOptions {
  Tableau tableau;
  std::variant<FixedSteps, ErrorControl> control;
  double s0 = 0.0;
  double s1 = 1.0;  // above s0: who wants to go backwards solves the reflected field
  std::vector<double> save_at = {};  // strictly increasing, within [s0, s1]
};

// kInvalidArgument says which option is wrong and what would be right.
absl::Status ValidateSolve(const SolveOptions& options);

// What one row cost. Evaluations that only other rows of the batch needed are not counted: a row's
// counts are those of the row alone.
struct RowCounts {
  int64_t nfe = 0;  // of f; rejected steps, first-step estimate and save points included
  int64_t correction_evaluations = 0;
  int64_t accepted = 0;
  int64_t rejected = 0;
  bool operator==(const RowCounts&) const = default;
};

// Rows in the order of z0.
template <class State>
struct SolveResult {
  State state;                    // z(s1), or how far the row came: its last finite state
  std::vector<RowStatus> status;  // of each row
  PerRow depth;                   // where `state` stands; s1 for rows that converged
  std::vector<RowCounts> counts;
  std::vector<State> saved;                // one for each of save_at
  std::vector<std::vector<bool>> reached;  // [save_at][row]: where not, the saved row is z0's
};

}  // namespace hyperserve
