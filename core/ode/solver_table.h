// Table methods: the coefficients of a whole solve with n evaluations of f, instead of those of one
// step that is repeated.
//
//   k_i = f(s_i, x_i)   x_{i+1} = a_i x_0 + sum_{j<=i} B_ij k_j + c_i   (i = 0 .. n-1)
//   z(s1) = x_n + g(x_0, x_n, k_0 .. k_{n-1})
//
// A second readout of the same slopes gives each row a distance that grows with its error:
//
//   d = e z(s1) + a' x_0 + sum_j b'_j k_j + c'      distance = |d| / |z(s1)|
//
// With e = 1 it is the distance from what a coarser table makes of these slopes.
//
// The functions below run in push form: after k_i, every later x_j gets B_ji k_i. The engines serve
// them and the trainer differentiates them; no second copy exists. Nothing here fails: numbers that
// are not finite spread, and the caller looks for them.
//
// Source: Shaul et al., "Bespoke Non-Stationary Solvers for Fast Sampling of Diffusion and Flow
// Models", 2024, arXiv 2403.01329; the readout g is ours.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/ode/space.h"
#include "core/plan/plan.h"

namespace hyperserve {

// The second readout: e, a', b' and c'.
template <class Coefficient>
struct DistanceReadout {
  Coefficient end, state;
  std::vector<Coefficient> slopes;  // [j]: b'_j
  Coefficient offset;
};

// Numbers on the host (classical plans), or what a space calls Coefficient. `state`, `slopes` and,
// unless it is empty, `offset` have as many entries as there are nodes.
template <class Coefficient>
struct SolverTable {
  std::vector<double> nodes;                     // s_i, on the solver's clock, within the span
  std::vector<Coefficient> state;                // [i]: a_i
  std::vector<std::vector<Coefficient>> slopes;  // [i][j]: B_ij, j <= i
  std::vector<Coefficient> offset;               // [i]: c_i; empty: zeros
  std::optional<DistanceReadout<Coefficient>> distance = std::nullopt;  // none: rows get none

  // n. 0: the end is x_0, with the readout added where the space has one.
  int evaluations() const { return static_cast<int>(nodes.size()); }
};

// A fixed classical plan on [s0, s1] as a table. Stages that only an error estimate needs are left
// out. Precondition: the plan is valid and not hypersolved.
SolverTable<double> ClassicalTable(const FixedPlan& plan, double s0, double s1);

// A space that also applies coefficients, and holds a readout g for some numbers of evaluations.
template <class S>
concept TableSpace = StateSpace<S> &&
    requires(const S& space, const typename S::State& z, const typename S::Coefficient& c,
             std::span<const typename S::State> slopes, int evaluations) {
  // c z
  { space.Scaled(c, z) } -> std::same_as<typename S::State>;
  // z + c k
  { space.AddScaled(z, c, z) } -> std::same_as<typename S::State>;
  // z + c
  { space.Shifted(z, c) } -> std::same_as<typename S::State>;
  { space.HasReadout(evaluations) } -> std::same_as<bool>;
  // x_n + g(x_0, x_n, slopes). Called only where HasReadout(evaluations).
  { space.Readout(evaluations, z, z, slopes) } -> std::same_as<typename S::State>;
};

// A solve under way, between two evaluations.
template <TableSpace Space>
struct TableProgress {
  using State = typename Space::State;
  State first;                // x_0
  std::vector<State> later;   // x_i, x_{i+1} .. x_n, with what is known of their sums; i evaluated
  std::vector<State> slopes;  // k_0 .. k_{i-1}; kept for a readout only
  int evaluated = 0;          // i
  std::optional<State> difference = std::nullopt;  // what is known of d; none: no distance readout
};

// Starts every x_i at a_i x_0 + c_i, and d at a' x_0 + c'. Evaluates nothing.
template <TableSpace Space>
TableProgress<Space> BeginTable(const Space& space,
                                const SolverTable<typename Space::Coefficient>& table,
                                typename Space::State first) {
  TableProgress<Space> progress;
  progress.later.push_back(first);
  for (size_t i = 0; i < table.state.size(); ++i) {
    auto x = space.Scaled(table.state[i], first);
    progress.later.push_back(table.offset.empty() ? std::move(x)
                                                  : space.Shifted(x, table.offset[i]));
  }
  if (table.distance) {
    progress.difference =
        space.Shifted(space.Scaled(table.distance->state, first), table.distance->offset);
  }
  progress.first = std::move(first);
  return progress;
}

// The state x_i at which f is evaluated next; x_n after the last evaluation.
template <TableSpace Space>
const typename Space::State& PointOf(const TableProgress<Space>& progress) {
  return progress.later.front();
}

// Takes k_i = f(s_i, PointOf(progress)) in. Precondition: evaluated < table.evaluations().
template <TableSpace Space>
void PushSlope(const Space& space, const SolverTable<typename Space::Coefficient>& table,
               typename Space::State slope, TableProgress<Space>& progress) {
  const size_t i = static_cast<size_t>(progress.evaluated++);
  progress.later.erase(progress.later.begin());
  for (size_t j = 0; j < progress.later.size(); ++j) {
    progress.later[j] = space.AddScaled(progress.later[j], table.slopes[i + j][i], slope);
  }
  if (table.distance) {
    progress.difference = space.AddScaled(*progress.difference, table.distance->slopes[i], slope);
  }
  if (space.HasReadout(table.evaluations())) progress.slopes.push_back(std::move(slope));
}

// z(s1), after the last evaluation.
template <TableSpace Space>
typename Space::State EndOfTable(const Space& space,
                                 const SolverTable<typename Space::Coefficient>& table,
                                 const TableProgress<Space>& progress) {
  const auto& last = PointOf(progress);
  if (!space.HasReadout(table.evaluations())) return last;
  return space.Readout(table.evaluations(), progress.first, last, progress.slopes);
}

// The distance of each row from the norms of its difference d and of its end z(s1).
inline PerRow DistancesOfNorms(PerRow of_differences, const PerRow& of_ends) {
  for (size_t row = 0; row < of_ends.size(); ++row) of_differences[row] /= of_ends[row];
  return of_differences;
}

// The distance of each row, after the last evaluation; `end` is z(s1). NaN where a number of the
// row is not finite. Precondition: the table has a distance readout.
template <TableSpace Space>
PerRow DistancesOfTable(const Space& space, const SolverTable<typename Space::Coefficient>& table,
                        const TableProgress<Space>& progress, const typename Space::State& end) {
  const auto difference = space.AddScaled(*progress.difference, table.distance->end, end);
  const PerRow zeros(static_cast<size_t>(space.Rows(end)), 0.0), ones(zeros.size(), 1.0);
  return DistancesOfNorms(space.ErrorNorms(difference, end, end, zeros, ones),
                          space.ErrorNorms(end, end, end, zeros, ones));
}

// The whole solve at once, for rows that all start together.
template <TableSpace Space>
typename Space::State SolveByTable(const Space& space,
                                   const SolverTable<typename Space::Coefficient>& table,
                                   typename Space::State first) {
  const PerRow rows(static_cast<size_t>(space.Rows(first)));
  TableProgress<Space> progress = BeginTable(space, table, std::move(first));
  for (const double node : table.nodes) {
    PushSlope(space, table, space.Field(PerRow(rows.size(), node), PointOf(progress)), progress);
  }
  return EndOfTable(space, table, progress);
}

}  // namespace hyperserve
