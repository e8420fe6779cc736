// Solves a batch of initial value problems piece by piece; rows join and leave between the steps.
//
//   BatchSolver<Space> solver(&space, options);
//   solver.Admit(z0, {{.rows = 2, .control = FixedSteps{.steps = 4}}});
//   while (!solver.Advance(8)) { ... check deadlines, admit more ... }
//   ... solver.TakeFinished() ...
//
// Each row has its own status, depth, step size and StepControl. Finished rows cost nothing. A
// row's numbers and counts are those it would have alone. Nothing fails: a row that goes wrong ends
// in its own RowStatus. Not thread-safe; unusable after an exception of the space.
#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/ode/controller.h"
#include "core/ode/dense.h"
#include "core/ode/first_steps.h"
#include "core/ode/masked.h"
#include "core/ode/rows.h"
#include "core/ode/solve_options.h"
#include "core/ode/solve_result.h"
#include "core/ode/space.h"
#include "core/ode/step.h"
#include "core/ode/step_ends.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// Made by the readable run for one spec, and by tests over vectors of doubles.
template <StateSpace Space>
class BatchSolver {
 public:
  using State = typename Space::State;

  // Borrows the space. Precondition: ValidateSolve(options).ok(); a CorrectedSpace if hypersolved.
  BatchSolver(const Space* space, SolveOptions options)
      : space_(space), options_(std::move(options)) {
    assert(ValidateSolve(options_).ok());
  }

  // Adds the rows of z0; they start with the next step. Rows are numbered from 0 in the order of
  // admission; returns the number of the first. Evaluates nothing. Precondition: the cohorts have
  // as many rows as z0 together, and valid controls of the options' stepping.
  int64_t Admit(State z0, std::span<const Cohort> cohorts);

  // Forgets rows [first, first + count) that are under way: no result, no cost after this step.
  void Drop(int64_t first, int64_t count);

  // Makes at most `max_evaluations` evaluations of f on all rows; true when every row has finished.
  // The sizes of these pieces change no bit of any result. Evaluations for first step sizes and for
  // save points are made along with another and do not count against the limit.
  bool Advance(int64_t max_evaluations);
  // True before the first Admit, too. A result may still wait for TakeFinished.
  bool done() const { return rows_.empty() && arrivals_.empty(); }

  // The rows that have ended since the last call, in groups that ended together.
  std::vector<SolveResult<State>> TakeFinished() { return std::exchange(finished_, {}); }

 private:
  struct Move {  // the step that is being taken
    PerRow s, eps, s_next;
    std::vector<State> slopes;
    State z_next;
    std::vector<bool> accepted;
  };

  bool controlled() const { return options_.stepping == Stepping::kErrorControlled; }
  size_t stages() const {
    return static_cast<size_t>(controlled() ? options_.tableau.stages()
                                            : options_.tableau.solution_stages());
  }
  double depth_slack() const { return DepthSlack(options_); }

  void Evaluate();
  void BeginMove();
  void EndFixedMove(Move& move);
  void EndControlledMove(Move& move);
  void Judge(Move& move);
  std::pair<size_t, size_t> SavesReached(const Move& move) const;
  bool SavesInside(const Row& row, double s_next) const;
  void EndSlope(Move& move);
  void Save(Move& move);
  void Retire();
  void Report(Rows<Space> ended) { finished_.push_back(ResultOf(std::move(ended))); }

  // Fixed after construction.
  const Space* space_;
  SolveOptions options_;

  Rows<Space> rows_;
  Rows<Space> arrivals_;      // they join with the next step
  std::optional<Move> move_;  // none between two steps
  int64_t next_number_ = 0;
  std::vector<SolveResult<State>> finished_;
};

// Rows of a span without length have ended already, and a save point at s0 is reached; both are
// reported by the next Advance, without an evaluation.
template <StateSpace Space>
int64_t BatchSolver<Space>::Admit(State z0, std::span<const Cohort> cohorts) {
  const int64_t first = next_number_;
  const bool saves_start = !options_.save_at.empty() && options_.save_at[0] == options_.s0;
  Rows<Space> arriving;
  for (const Cohort& cohort : cohorts) {
    assert(SteppingOf(cohort.control) == options_.stepping);
    for (int64_t i = 0; i < cohort.rows; ++i) {
      Row row{.number = next_number_++, .control = cohort.control, .s = options_.s0};
      row.reached.assign(options_.save_at.size(), false);
      if (saves_start) row.reached[row.next_save++] = true;
      if (options_.s0 == options_.s1) row.ended = RowStatus::kConverged;
      arriving.row.push_back(std::move(row));
    }
  }
  assert(static_cast<int64_t>(arriving.size()) == space_->Rows(z0));
  arriving.saved.assign(options_.save_at.size(), z0);
  if (options_.hypersolved) arriving.z_first = z0;
  arriving.z = std::move(z0);
  Append(*space_, std::move(arriving), arrivals_);
  return first;
}

// Rows of a step that is under way are marked and leave at its end, since its slopes hold all rows
// side by side; where all of them are marked the step itself is given up.
template <StateSpace Space>
void BatchSolver<Space>::Drop(int64_t first, int64_t count) {
  const auto is_meant = [&](const Row& row) {
    return row.number >= first && row.number - first < count;
  };
  std::vector<int64_t> staying;
  for (size_t i = 0; i < arrivals_.size(); ++i) {
    if (!is_meant(arrivals_.row[i])) staying.push_back(static_cast<int64_t>(i));
  }
  arrivals_ = staying.empty() ? Rows<Space>() : Take(*space_, arrivals_, staying);
  bool all = true;
  for (Row& row : rows_.row) {
    row.dropped = row.dropped || is_meant(row);
    all = all && row.dropped;
  }
  if (all) move_.reset();
  if (!move_) Retire();
}

template <StateSpace Space>
bool BatchSolver<Space>::Advance(int64_t max_evaluations) {
  for (int64_t i = 0; i < max_evaluations && !done(); ++i) Evaluate();
  return done();
}

// One evaluation of f for the step under way, and what belongs to its start or its end. Rows that
// wait join here, never in the middle of a step.
template <StateSpace Space>
void BatchSolver<Space>::Evaluate() {
  if (!move_) {
    Rows<Space> arriving = std::exchange(arrivals_, {});
    if (controlled() && !arriving.empty() && options_.s0 < options_.s1) {
      ChooseFirstSteps(*space_, options_, arriving);
    }
    Append(*space_, std::move(arriving), rows_);
    Retire();
    if (rows_.empty()) return;
    BeginMove();
  }
  Move& move = *move_;
  if (move.slopes.size() < stages()) {
    move.slopes.push_back(NextSlope(*space_, options_.tableau, move.s, move.eps, *rows_.z,
                                    std::span<const State>(move.slopes)));
  }
  if (move.slopes.size() < stages()) return;
  controlled() ? EndControlledMove(move) : EndFixedMove(move);
  move_.reset();
  Retire();
}

// Sets depth and size of the next step of every row. A first slope that is known for all rows
// becomes stage 1 and is not evaluated again.
template <StateSpace Space>
void BatchSolver<Space>::BeginMove() {
  const size_t count = rows_.size();
  move_.emplace(Move{.s = PerRow(count), .eps = PerRow(count), .s_next = PerRow(count)});
  for (size_t i = 0; i < count; ++i) {
    const Row& row = rows_.row[i];
    move_->s[i] = row.s;
    const NextStep next = NextStepOf(options_, row);
    move_->eps[i] = next.eps;
    move_->s_next[i] = next.s_next;
  }
  if (rows_.first_slope) move_->slopes.push_back(*rows_.first_slope);
}

// The end of a fixed step: a row whose new state is not finite ends and keeps the old one.
template <StateSpace Space>
void BatchSolver<Space>::EndFixedMove(Move& move) {
  const auto update = [&]() -> State {
    const std::span<const State> slopes(move.slopes);
    if constexpr (CorrectedSpace<Space>) {
      if (options_.hypersolved) {
        return HypersolvedUpdate<Space>(*space_, options_.tableau, move.s, move.eps, *rows_.z,
                                        *rows_.z_first, slopes);
      }
    }
    return ClassicalUpdate<Space>(*space_, options_.tableau, move.eps, *rows_.z, slopes);
  };
  move.z_next = update();
  space_->AfterStep(move.z_next);
  move.accepted = space_->Finite(move.z_next);
  rows_.first_slope.reset();
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_.row[i];
    row.counts.nfe += static_cast<int64_t>(stages()) - (row.first_slope_known ? 1 : 0);
    row.counts.correction_evaluations += options_.hypersolved ? 1 : 0;
    row.first_slope_known = false;
    if (!move.accepted[i]) row.ended = RowStatus::kNonFinite;
  }
  EndSlope(move);
  Save(move);
  rows_.z = Choose(*space_, move.accepted, std::move(move.z_next), *rows_.z);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!move.accepted[i]) continue;
    Row& row = rows_.row[i];
    row.counts.accepted += 1;
    row.s = move.s_next[i];
    row.step += row.s == GridDepth(options_, row) ? 1 : 0;  // else a break cut it
    if (row.step == std::get<FixedSteps>(row.control).steps) row.ended = RowStatus::kConverged;
  }
}

// The end of a step under error control. Of several reasons to end, reaching s1 goes first, then a
// failure that is known, a step below SmallestStep, too many overflows, and the step limit last.
template <StateSpace Space>
void BatchSolver<Space>::EndControlledMove(Move& move) {
  move.z_next = ClassicalUpdate<Space>(*space_, options_.tableau, move.eps, *rows_.z, move.slopes);
  Judge(move);
  EndSlope(move);
  Save(move);
  rows_.z = Choose(*space_, move.accepted, std::move(move.z_next), *rows_.z);
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_.row[i];
    if (move.accepted[i]) row.s = move.s_next[i];
    if (row.s == options_.s1) {
      row.ended = RowStatus::kConverged;
    } else if (row.ended) {
      continue;
    } else if (!(row.eps >= SmallestStep(row.s))) {
      row.ended = row.finite ? RowStatus::kStepUnderflow : RowStatus::kNonFinite;
    } else if (row.overflows > Row::kOverflowsMax) {
      row.ended = RowStatus::kNonFinite;
    } else if (row.counts.accepted + row.counts.rejected >=
               std::get<ErrorControl>(row.control).max_steps) {
      row.ended = RowStatus::kStepLimit;
    }
  }
}

// Accepts or refuses the step of each row, and sets the size of the next.
template <StateSpace Space>
void BatchSolver<Space>::Judge(Move& move) {
  Combination<Space> estimate;
  estimate.AddSlopes(move.eps, options_.tableau.error, move.slopes);
  const PerRow norms = space_->ErrorNorms(estimate.Sum(*space_, space_->Zero(*rows_.z)), *rows_.z,
                                          move.z_next, Tolerances(rows_.row, &ErrorControl::rtol),
                                          Tolerances(rows_.row, &ErrorControl::atol));
  move.accepted.assign(rows_.size(), false);
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_.row[i];
    const StepController::Decision decision = row.controller.Decide(norms[i]);
    move.accepted[i] = decision.accepted;
    row.finite = !std::isnan(norms[i]);
    row.overflows += row.finite ? 0 : 1;
    const double wanted = std::exchange(row.eps, move.eps[i] * decision.factor);
    if (decision.accepted && move.s_next[i] != options_.s1 &&
        move.s_next[i] == NextBreak(options_, row.s)) {
      row.eps = std::max(row.eps, wanted);  // the break cut it, not the error
      row.controller = StepController(options_.tableau.embedded_order);
    }
    row.counts.nfe += options_.tableau.stages() - 1;
    row.counts.accepted += decision.accepted ? 1 : 0;
    row.counts.rejected += decision.accepted ? 0 : 1;
  }
}

// Does the next save point of the row lie before the end of the step, so that it needs
// interpolation?
template <StateSpace Space>
bool BatchSolver<Space>::SavesInside(const Row& row, double s_next) const {
  return row.next_save < options_.save_at.size() &&
         options_.save_at[row.next_save] < s_next - depth_slack();
}

// Stores f(s_next, z_next) in first_slope where a row needs it: for save points within this step
// and, under error control, for the next step. Refused rows keep their first slope.
template <StateSpace Space>
void BatchSolver<Space>::EndSlope(Move& move) {
  const bool known = move.slopes.size() == static_cast<size_t>(options_.tableau.stages()) &&
                     options_.tableau.fsal();
  bool needed = false;
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_.row[i];
    if (!move.accepted[i]) continue;
    const bool goes_on = controlled() && move.s_next[i] != options_.s1;
    if (!goes_on && !SavesInside(row, move.s_next[i])) continue;
    needed = true;
    row.first_slope_known = true;
    row.counts.nfe += known ? 0 : 1;
  }
  if (!needed) return;
  State slope = known ? move.slopes.back() : space_->Field(move.s_next, move.z_next);
  rows_.first_slope = controlled()
                          ? Choose(*space_, move.accepted, std::move(slope), *rows_.first_slope)
                          : std::move(slope);
  if (!controlled() || known) return;
  const std::vector<bool> finite = space_->Finite(*rows_.first_slope);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!finite[i]) rows_.row[i].ended = RowStatus::kNonFinite;
  }
}

// The save points that the step of some row may reach: [first, end).
template <StateSpace Space>
std::pair<size_t, size_t> BatchSolver<Space>::SavesReached(const Move& move) const {
  const std::vector<double>& depths = options_.save_at;
  size_t first = depths.size(), end = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!move.accepted[i]) continue;
    first = std::min(first, rows_.row[i].next_save);
    const auto above =
        std::upper_bound(depths.begin(), depths.end(), move.s_next[i] + depth_slack());
    end = std::max(end, static_cast<size_t>(above - depths.begin()));
  }
  return {first, std::max(first, end)};
}

// Stores the states at the depths that this step reaches. Where one is not finite the row ends.
template <StateSpace Space>
void BatchSolver<Space>::Save(Move& move) {
  const size_t count = rows_.size();
  const bool own = options_.tableau.has_dense() && !options_.hypersolved;
  std::vector<State> slopes;
  const auto [first, end] = SavesReached(move);
  for (size_t k = first; k < end; ++k) {
    std::vector<bool> inside(count, false), at_end(count, false);
    PerRow theta(count, 0.0);
    for (size_t i = 0; i < count; ++i) {
      Row& row = rows_.row[i];
      const double depth = options_.save_at[k];
      if (!move.accepted[i] || row.next_save != k || depth > move.s_next[i] + depth_slack()) {
        continue;
      }
      inside[i] = SavesInside(row, move.s_next[i]);
      at_end[i] = !inside[i];
      theta[i] = inside[i] ? std::clamp((depth - move.s[i]) / move.eps[i], 0.0, 1.0) : 0.0;
      row.next_save += 1;
    }
    if (Any(at_end)) Store(*space_, rows_, k, move.z_next, at_end);
    if (!Any(inside)) continue;
    if (slopes.empty()) {
      slopes = move.slopes;
      // The last stage of a first-same-as-last method is the slope at the end.
      if (own && slopes.size() < static_cast<size_t>(options_.tableau.stages())) {
        slopes.push_back(*rows_.first_slope);
      }
    }
    const State between = Interpolate<Space>(
        *space_, options_.tableau, own ? Interpolant::kOwn : Interpolant::kHermite, move.eps, theta,
        *rows_.z, slopes, move.z_next, *rows_.first_slope);
    const std::vector<bool> finite = space_->Finite(between);
    for (size_t i = 0; i < count; ++i) {
      if (!inside[i] || finite[i]) continue;
      move.accepted[i] = inside[i] = false;
      rows_.row[i].ended = RowStatus::kNonFinite;
    }
    Store(*space_, rows_, k, between, inside);
  }
}

// Removes rows that have ended or were dropped, and reports those that have ended.
template <StateSpace Space>
void BatchSolver<Space>::Retire() {
  std::vector<int64_t> ended, staying;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_.row[i];
    if (!row.dropped) (row.ended ? ended : staying).push_back(static_cast<int64_t>(i));
  }
  if (staying.size() == rows_.size()) return;
  if (ended.size() == rows_.size()) return Report(std::exchange(rows_, {}));
  if (!ended.empty()) Report(Take(*space_, rows_, ended));
  rows_ = staying.empty() ? Rows<Space>() : Take(*space_, rows_, staying);
}

}  // namespace hyperserve
