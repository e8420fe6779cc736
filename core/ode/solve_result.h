// What a BatchSolver returns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/ode/space.h"
#include "core/plan/row_status.h"

namespace hyperserve {

// What one row cost. Evaluations that only other rows of the batch needed are not counted: a row's
// counts are those of the row alone.
struct RowCounts {
  int64_t nfe = 0;  // of f; rejected steps, first-step estimate and save points included
  int64_t correction_evaluations = 0;
  int64_t accepted = 0;
  int64_t rejected = 0;
  bool operator==(const RowCounts&) const = default;
};

// Rows that have ended.
template <class State>
struct SolveResult {
  std::vector<int64_t> rows;      // their numbers, as Admit gave them
  State state;                    // z(s1), or how far the row came: its last finite state
  std::vector<RowStatus> status;  // of each row
  PerRow depth;                   // where `state` stands; s1 for rows that converged
  std::vector<RowCounts> counts;
  std::vector<State> saved;                // one for each of save_at
  std::vector<std::vector<bool>> reached;  // [save_at][row]: where not, the saved row is z0's
};

// All rows of a solve in the order of their numbers. Precondition: at least one result.
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
    for (size_t i = 0; i < order.size(); ++i) sorted[i] = list[static_cast<size_t>(order[i])];
    list = std::move(sorted);
  };
  reorder(all.rows);
  reorder(all.status);
  reorder(all.depth);
  reorder(all.counts);
  all.state = space.Gather(all.state, order);
  for (State& state : all.saved) state = space.Gather(state, order);
  for (std::vector<bool>& reached : all.reached) reorder(reached);
  return all;
}

}  // namespace hyperserve
