// The first slopes and step sizes of rows under error control. Used by BatchSolver only.
#pragma once

#include <algorithm>
#include <vector>

#include "core/ode/controller.h"
#include "core/ode/rows.h"
#include "core/ode/solve_options.h"
#include "core/ode/space.h"
#include "core/ode/step.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// One of the two tolerances of each row. Precondition: every row is under error control.
inline PerRow Tolerances(const std::vector<Row>& rows, double ErrorControl::*tolerance) {
  PerRow values;
  values.reserve(rows.size());
  for (const Row& row : rows) values.push_back(std::get<ErrorControl>(row.control).*tolerance);
  return values;
}

// Sets the first slope, step size and controller of rows that stand at s0; see controller.h for the
// source. Makes two evaluations of f and counts them. A row with a non-finite first slope ends in
// kNonFinite. Precondition: at least one row.
template <StateSpace Space>
void ChooseFirstSteps(const Space& space, const SolveOptions& options, Rows<Space>& rows) {
  using State = typename Space::State;
  const double span = options.s1 - options.s0;
  const State& z = *rows.z;
  const PerRow rtol = Tolerances(rows.row, &ErrorControl::rtol);
  const PerRow atol = Tolerances(rows.row, &ErrorControl::atol);
  const auto norms = [&](const State& error) { return space.ErrorNorms(error, z, z, rtol, atol); };
  PerRow guesses(rows.size()), ends(rows.size());
  rows.first_slope = space.Field(PerRow(rows.size(), options.s0), z);
  const std::vector<bool> finite = space.Finite(*rows.first_slope);
  const PerRow state_norms = norms(z), slope_norms = norms(*rows.first_slope);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows.row[i].counts.nfe += 1;
    if (!finite[i]) rows.row[i].ended = RowStatus::kNonFinite;
    guesses[i] =
        FitStep(options.s0, FirstStepGuess(state_norms[i], slope_norms[i], span), options.s1);
    ends[i] = options.s0 + guesses[i];
  }
  Combination<Space> euler, change;
  euler.Add(guesses, *rows.first_slope);
  const State probe = space.Field(ends, euler.Sum(space, z));
  change.Add(PerRow(rows.size(), -1.0), *rows.first_slope);
  const PerRow change_norms = norms(change.Sum(space, probe));
  const int order = options.tableau.embedded_order;
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows.row[i];
    if (row.ended) continue;
    row.counts.nfe += 1;
    row.controller = StepController(order);
    row.eps =
        std::max(FirstStep(guesses[i], slope_norms[i], change_norms[i] / guesses[i], order, span),
                 10.0 * SmallestStep(options.s0));
  }
}

}  // namespace hyperserve
