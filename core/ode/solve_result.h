// The results of a BatchSolver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/ode/space.h"
#include "core/plan/row_status.h"

namespace hyperserve {

// The cost of one row, as if it were solved alone: evaluations that only other rows needed are not
// counted.
struct RowCounts {
  int64_t nfe = 0;  // evaluations of f, also of rejected steps, the first step and save points
  int64_t correction_evaluations = 0;
  int64_t accepted = 0;  // steps
  int64_t rejected = 0;  // steps
  bool operator==(const RowCounts&) const = default;
};

// Rows that ended together. Every list has one entry for each row, in the order of `rows`. Plain
// data that owns its states.
template <class State>
struct SolveResult {
  std::vector<int64_t> rows;  // their numbers, as Admit gave them
  State state;                // z(s1); the last finite state of rows that failed
  std::vector<RowStatus> status;
  PerRow depth;  // the depth of `state`; s1 for rows that converged
  std::vector<RowCounts> counts;
  PerRow distance;           // of tables with a distance readout (solver_table.h); else empty
  std::vector<State> saved;  // one state for each of save_at
  std::vector<std::vector<bool>> reached;  // [save_at][row]; false: the saved row holds z(s0)
};

// Joins results into one, in the order of the rows' numbers. Precondition: at least one result, all
// of one solver.
template <StateSpace Space>
SolveResult<typename Space::State> InOrder(
    const Space& space, std::vector<SolveResult<typename Space::State>> results) {
  using State = typename Space::State;
  SolveResult<State> all = std::move(results.front());
  const auto append = [](auto& list, const auto& more) {
    list.insert(list.end(), more.begin(), more.end());
  };
  for (size_t i = 1; i < results.size(); ++i) {
    const SolveResult<State>& more = results[i];
    append(all.rows, more.rows);
    append(all.status, more.status);
    append(all.depth, more.depth);
    append(all.counts, more.counts);
    append(all.distance, more.distance);
    all.state = space.Join(all.state, more.state);
    for (size_t k = 0; k < all.saved.size(); ++k) {
      all.saved[k] = space.Join(all.saved[k], more.saved[k]);
      append(all.reached[k], more.reached[k]);
    }
  }
  std::vector<int64_t> order(all.rows.size());
  std::iota(order.begin(), order.end(), 0);
  const auto number = [&](int64_t place) { return all.rows[static_cast<size_t>(place)]; };
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return number(a) < number(b); });
  const auto reorder = [&](auto& list) {
    auto sorted = list;
    for (size_t i = 0; i < list.size(); ++i) sorted[i] = list[static_cast<size_t>(order[i])];
    list = std::move(sorted);
  };
  reorder(all.rows);
  reorder(all.status);
  reorder(all.depth);
  reorder(all.counts);
  reorder(all.distance);
  all.state = space.Gather(all.state, order);
  for (State& state : all.saved) state = space.Gather(state, order);
  for (std::vector<bool>& reached : all.reached) reorder(reached);
  return all;
}

}  // namespace hyperserve
