// The rows that a BatchSolver is solving: the progress of each row, and their states side by side.
// Rows join at the end and leave from any place. Private to BatchSolver.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/ode/controller.h"
#include "core/ode/masked.h"
#include "core/ode/solve_result.h"
#include "core/ode/space.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// The numbers of one row, all on the host. Only the BatchSolver that holds the row changes them.
struct Row {
  // A field that is not finite beyond some bound costs a few refused steps. A state that grows over
  // all bounds would go on refusing, ever nearer to them.
  static constexpr int64_t kOverflowsMax = 50;

  int64_t number = 0;  // as Admit gave it
  StepControl control;
  double s = 0.0;                  // the depth of its state
  int64_t step = 0;                // fixed steps done
  double eps = 0.0;                // error control: the next step size
  StepController controller{1};    // error control; set by ChooseFirstSteps
  bool finite = true;              // error control: was the last attempt finite?
  int64_t overflows = 0;           // error control: attempts that were not finite
  bool first_slope_known = false;  // f(s, z) was evaluated and counted for a save point
  size_t next_save = 0;            // index into save_at
  std::vector<bool> reached;       // one for each of save_at
  RowCounts counts;
  std::optional<RowStatus> ended = std::nullopt;  // none: under way
  bool dropped = false;                           // leaves at the next Retire, without a result
};

// Row i of every state belongs to row[i].
template <StateSpace Space>
struct Rows {
  using State = typename Space::State;

  std::vector<Row> row;
  std::optional<State> z;            // none where there are no rows
  std::optional<State> z_first;      // z(s0); hypersolved solves only
  std::optional<State> first_slope;  // f(s, z); none unless it is known for every row
  std::vector<State> saved;          // one for each of save_at

  // Of rows that are here, also those that have ended or were dropped and have not left yet.
  size_t size() const { return row.size(); }
  bool empty() const { return row.empty(); }
};

// Calls function(state) for every state that is present.
template <StateSpace Space, class Function>
void ForEachState(Rows<Space>& rows, const Function& function) {
  for (auto* state : {&rows.z, &rows.z_first, &rows.first_slope}) {
    if (*state) function(**state);
  }
  for (auto& state : rows.saved) function(state);
}

// The rows at these places, in this order. Precondition: `places` ascends, so as many places as
// rows means all rows, which are copied as they are.
template <StateSpace Space>
Rows<Space> Take(const Space& space, const Rows<Space>& rows, const std::vector<int64_t>& places) {
  if (places.size() == rows.size()) return rows;
  Rows<Space> taken{.row = {},
                    .z = rows.z,
                    .z_first = rows.z_first,
                    .first_slope = rows.first_slope,
                    .saved = rows.saved};
  taken.row.reserve(places.size());
  for (const int64_t place : places) taken.row.push_back(rows.row[static_cast<size_t>(place)]);
  ForEachState(taken, [&](typename Space::State& state) { state = space.Gather(state, places); });
  return taken;
}

// Appends `more` to `rows`. A first slope that only some of the rows have is forgotten.
template <StateSpace Space>
void Append(const Space& space, Rows<Space> more, Rows<Space>& rows) {
  if (more.empty()) return;
  if (rows.empty()) {
    rows = std::move(more);
    return;
  }
  const auto join = [&](auto& state, auto& with) {
    if (state && with) {
      state = space.Join(*state, *with);
    } else {
      state.reset();
    }
  };
  join(rows.z, more.z);
  join(rows.z_first, more.z_first);
  join(rows.first_slope, more.first_slope);
  for (size_t k = 0; k < rows.saved.size(); ++k) {
    rows.saved[k] = space.Join(rows.saved[k], more.saved[k]);
  }
  rows.row.insert(rows.row.end(), std::make_move_iterator(more.row.begin()),
                  std::make_move_iterator(more.row.end()));
}

// Saves the masked rows of `source` at the depth save_at[k].
template <StateSpace Space>
void Store(const Space& space, Rows<Space>& rows, size_t k, const typename Space::State& source,
           const std::vector<bool>& mask) {
  rows.saved[k] = Choose(space, mask, source, rows.saved[k]);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (mask[i]) rows.row[i].reached[k] = true;
  }
}

// The result of rows that have all ended.
template <StateSpace Space>
SolveResult<typename Space::State> ResultOf(Rows<Space> ended) {
  SolveResult<typename Space::State> result;
  for (const Row& row : ended.row) {
    result.rows.push_back(row.number);
    result.status.push_back(*row.ended);
    result.depth.push_back(row.s);
    result.counts.push_back(row.counts);
  }
  for (size_t k = 0; k < ended.saved.size(); ++k) {
    std::vector<bool>& reached = result.reached.emplace_back();
    for (const Row& row : ended.row) reached.push_back(row.reached[k]);
  }
  result.state = *std::move(ended.z);
  result.saved = std::move(ended.saved);
  return result;
}

}  // namespace hyperserve
