// Solves a batch of initial value problems, in pieces that the caller sizes.
//
//   BatchSolver<Space> solver(&space, options, z0);
//   while (!solver.Advance(8)) { ... look at deadlines ... }
//   SolveResult<Space::State> result = solver.TakeResult();
//
// Every row has its own status and, under error control, its own depth, step size and controller;
// rows that have finished are taken out of the batch and cost nothing. A row's numbers are those it
// would get alone. Not thread-safe.
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
#include "core/ode/masked.h"
#include "core/ode/solve_options.h"
#include "core/ode/space.h"
#include "core/ode/step.h"

namespace hyperserve {

template <StateSpace Space>
class BatchSolver {
 public:
  using State = typename Space::State;

  // Preconditions: ValidateSolve(options).ok(); hypersolved only over a CorrectedSpace; the space
  // outlives the solver. No evaluation of f before the first Advance.
  BatchSolver(const Space* space, SolveOptions options, State z0);

  // At most `max_steps` steps of the batch (attempts, under error control); true when every row has
  // finished. In how many pieces a solve is done changes no bit of it.
  bool Advance(int64_t max_steps);
  bool done() const { return rows_.empty(); }

  // Ends the solve. Precondition: done().
  SolveResult<State> TakeResult() {
    assert(done());
    return std::move(result_);
  }

 private:
  struct Row {
    int64_t index = 0;  // in z0
    double s = 0.0;
    double eps = 0.0;  // what the controller asks for
    StepController controller{1};
    size_t next_save = 0;  // into save_at
    bool finite = true;    // of the last attempt
    std::optional<RowStatus> ended = std::nullopt;
  };
  // The step being taken, over the active rows.
  struct Move {
    PerRow s, eps, s_next;
    std::vector<State> slopes;
    State z_next;
    std::vector<bool> accepted;
  };

  const FixedSteps* fixed() const { return std::get_if<FixedSteps>(&options_.control); }
  const ErrorControl* control() const { return std::get_if<ErrorControl>(&options_.control); }
  RowCounts& counts(const Row& row) { return result_.counts[static_cast<size_t>(row.index)]; }
  double depth_slack() const;

  void BeginErrorControl();
  void FixedStep();
  void ControlledStep();
  void Judge(Move& move);
  bool SavesInside(const Row& row, double s_next) const;
  void EndSlope(Move& move);
  void Save(const Move& move);
  void StoreSaved(size_t k, const State& source, const std::vector<bool>& mask);
  void Store(State& target, const State& source, const std::vector<bool>& mask);
  void Retire();

  // Fixed after construction.
  const Space* space_;
  SolveOptions options_;
  bool hypersolved_;

  // The active rows, in the order of z0; all of one size.
  std::vector<Row> rows_;
  State z_;
  std::optional<State> z_first_;      // hypersolved only
  std::optional<State> first_slope_;  // f(s, z), where it is known already
  int64_t step_ = 0;                  // fixed steps done
  bool begun_ = false;

  SolveResult<State> result_;
};

template <StateSpace Space>
BatchSolver<Space>::BatchSolver(const Space* space, SolveOptions options, State z0)
    : space_(space),
      options_(std::move(options)),
      hypersolved_(fixed() != nullptr && fixed()->hypersolved),
      z_(std::move(z0)),
      result_{.state = z_} {
  assert(ValidateSolve(options_).ok());
  const size_t rows = static_cast<size_t>(space_->Rows(z_));
  result_.status.assign(rows, RowStatus::kConverged);
  result_.depth.assign(rows, options_.s0);
  result_.counts.assign(rows, {});
  result_.saved.assign(options_.save_at.size(), z_);
  result_.reached.assign(options_.save_at.size(), std::vector<bool>(rows, false));
  const size_t first_save = !options_.save_at.empty() && options_.save_at[0] == options_.s0;
  if (first_save > 0) result_.reached[0].assign(rows, true);
  for (size_t i = 0; i < rows; ++i) {
    rows_.push_back({.index = static_cast<int64_t>(i), .s = options_.s0, .next_save = first_save});
  }
  if (hypersolved_) z_first_ = z_;
}

template <StateSpace Space>
bool BatchSolver<Space>::Advance(int64_t max_steps) {
  if (!begun_ && !done()) {
    begun_ = true;
    if (control() != nullptr) BeginErrorControl();
  }
  for (int64_t i = 0; i < max_steps && !done(); ++i) {
    if (control() != nullptr) {
      ControlledStep();
    } else {
      FixedStep();
    }
  }
  return done();
}

// Depths closer than this are the same depth, computed in two ways.
template <StateSpace Space>
double BatchSolver<Space>::depth_slack() const {
  return 4.0 * std::numeric_limits<double>::epsilon() *
         std::max(std::abs(options_.s0), std::abs(options_.s1));
}

// The first slopes and the first step sizes, after Hairer: one more evaluation of f.
template <StateSpace Space>
void BatchSolver<Space>::BeginErrorControl() {
  const double span = options_.s1 - options_.s0;
  const auto norms = [&](const State& error) {
    return space_->ErrorNorms(error, z_, z_, control()->rtol, control()->atol);
  };
  PerRow s(rows_.size(), options_.s0), guesses(rows_.size()), ends(rows_.size());
  first_slope_ = space_->Field(s, z_);
  const std::vector<bool> finite = space_->Finite(*first_slope_);
  const PerRow state_norms = norms(z_), slope_norms = norms(*first_slope_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    counts(rows_[i]).nfe += 1;
    if (!finite[i]) rows_[i].ended = RowStatus::kNonFinite;
    guesses[i] =
        FitStep(options_.s0, FirstStepGuess(state_norms[i], slope_norms[i], span), options_.s1);
    ends[i] = options_.s0 + guesses[i];
  }
  Combination<Space> euler, change;
  euler.Add(guesses, *first_slope_);
  const State probe = space_->Field(ends, euler.Sum(*space_, z_));
  change.Add(PerRow(rows_.size(), -1.0), *first_slope_);
  const PerRow change_norms = norms(change.Sum(*space_, probe));
  const int order = options_.tableau.embedded_order;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].ended) continue;
    counts(rows_[i]).nfe += 1;
    rows_[i].controller = StepController(order);
    rows_[i].eps =
        std::max(FirstStep(guesses[i], slope_norms[i], change_norms[i] / guesses[i], order, span),
                 10.0 * SmallestStep(options_.s0));
  }
  Retire();
}

template <StateSpace Space>
void BatchSolver<Space>::FixedStep() {
  const int64_t steps = fixed()->steps;
  const double span = options_.s1 - options_.s0;
  // Each depth is computed from the span's ends, so that rounding does not add up.
  const auto depth = [&](int64_t k) {
    return k == steps ? options_.s1
                      : options_.s0 + span * static_cast<double>(k) / static_cast<double>(steps);
  };
  const double s = depth(step_), s_next = depth(step_ + 1);
  const double eps = FitStep(s, span / static_cast<double>(steps), options_.s1);
  const size_t rows = rows_.size();
  const int64_t evaluations = options_.tableau.solution_stages() - (first_slope_ ? 1 : 0);
  Move move{.s = PerRow(rows, s), .eps = PerRow(rows, eps), .s_next = PerRow(rows, s_next)};
  Step<Space> step = [&] {
    std::optional<State> first_slope = std::exchange(first_slope_, std::nullopt);
    if constexpr (CorrectedSpace<Space>) {
      if (hypersolved_) {
        return HypersolvedStep(*space_, options_.tableau, move.s, move.eps, z_, *z_first_,
                               std::move(first_slope));
      }
    }
    return ClassicalStep(*space_, options_.tableau, move.s, move.eps, z_, std::move(first_slope));
  }();
  move.slopes = std::move(step.slopes);
  move.z_next = std::move(step.z_next);
  space_->AfterStep(move.z_next);
  move.accepted = space_->Finite(move.z_next);
  for (size_t i = 0; i < rows; ++i) {
    counts(rows_[i]).nfe += evaluations;
    counts(rows_[i]).correction_evaluations += hypersolved_ ? 1 : 0;
    if (!move.accepted[i]) rows_[i].ended = RowStatus::kNonFinite;
  }
  EndSlope(move);
  Save(move);
  z_ = Choose(*space_, move.accepted, std::move(move.z_next), z_);
  ++step_;
  for (size_t i = 0; i < rows; ++i) {
    if (!move.accepted[i]) continue;
    counts(rows_[i]).accepted += 1;
    rows_[i].s = s_next;
    if (step_ == steps) rows_[i].ended = RowStatus::kConverged;
  }
  Retire();
}

template <StateSpace Space>
void BatchSolver<Space>::ControlledStep() {
  const size_t rows = rows_.size();
  const Tableau& tableau = options_.tableau;
  Move move{.s = PerRow(rows), .eps = PerRow(rows), .s_next = PerRow(rows)};
  for (size_t i = 0; i < rows; ++i) {
    const NextStep next = ClampStep(rows_[i].s, rows_[i].eps, options_.s1);
    move.s[i] = rows_[i].s;
    move.eps[i] = next.eps;
    move.s_next[i] = next.s_next;
  }
  move.slopes = Slopes(*space_, tableau, tableau.stages(), move.s, move.eps, z_, first_slope_);
  move.z_next = ClassicalUpdate<Space>(*space_, tableau, move.eps, z_, move.slopes);
  Judge(move);
  EndSlope(move);
  Save(move);
  z_ = Choose(*space_, move.accepted, std::move(move.z_next), z_);
  for (size_t i = 0; i < rows; ++i) {
    Row& row = rows_[i];
    if (move.accepted[i]) row.s = move.s_next[i];
    const RowCounts& count = counts(row);
    if (row.s == options_.s1) {
      row.ended = RowStatus::kConverged;
    } else if (row.ended) {
      continue;
    } else if (!(row.eps >= SmallestStep(row.s))) {
      row.ended = row.finite ? RowStatus::kStepUnderflow : RowStatus::kNonFinite;
    } else if (count.accepted + count.rejected >= control()->max_steps) {
      row.ended = RowStatus::kStepLimit;
    }
  }
  Retire();
}

// Accepts or refuses the step of each row, and asks the controllers for the next.
template <StateSpace Space>
void BatchSolver<Space>::Judge(Move& move) {
  Combination<Space> estimate;
  estimate.AddSlopes(move.eps, options_.tableau.error, move.slopes);
  const PerRow norms = space_->ErrorNorms(estimate.Sum(*space_, space_->Zero(z_)), z_, move.z_next,
                                          control()->rtol, control()->atol);
  move.accepted.assign(rows_.size(), false);
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    const StepController::Decision decision = row.controller.Decide(norms[i]);
    move.accepted[i] = decision.accepted;
    row.finite = !std::isnan(norms[i]);
    row.eps = move.eps[i] * decision.factor;
    counts(row).nfe += options_.tableau.stages() - 1;
    counts(row).accepted += decision.accepted ? 1 : 0;
    counts(row).rejected += decision.accepted ? 0 : 1;
  }
}

template <StateSpace Space>
bool BatchSolver<Space>::SavesInside(const Row& row, double s_next) const {
  return row.next_save < options_.save_at.size() &&
         options_.save_at[row.next_save] < s_next - depth_slack();
}

// Leaves f(s_next, z_next) in first_slope_ where a row needs it: for the states within this step,
// and under error control for the step after. Rows that were refused keep their first slope.
template <StateSpace Space>
void BatchSolver<Space>::EndSlope(Move& move) {
  const bool known = move.slopes.size() == static_cast<size_t>(options_.tableau.stages()) &&
                     options_.tableau.fsal();
  bool needed = false;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!move.accepted[i]) continue;
    const bool goes_on = control() != nullptr && move.s_next[i] != options_.s1;
    if (!goes_on && !SavesInside(rows_[i], move.s_next[i])) continue;
    needed = true;
    counts(rows_[i]).nfe += known ? 0 : 1;
  }
  if (!needed) return;
  State slope = known ? move.slopes.back() : space_->Field(move.s_next, move.z_next);
  first_slope_ = control() == nullptr
                     ? std::move(slope)
                     : Choose(*space_, move.accepted, std::move(slope), *first_slope_);
  if (control() == nullptr || known) return;
  const std::vector<bool> finite = space_->Finite(*first_slope_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!finite[i]) rows_[i].ended = RowStatus::kNonFinite;
  }
}

// Stores the states at the depths of save_at that this step has passed.
template <StateSpace Space>
void BatchSolver<Space>::Save(const Move& move) {
  const size_t rows = rows_.size(), depths = options_.save_at.size();
  const bool own = options_.tableau.has_dense() && !hypersolved_;
  std::vector<State> slopes;
  for (size_t k = 0; k < depths; ++k) {
    std::vector<bool> inside(rows, false), at_end(rows, false);
    PerRow theta(rows, 0.0);
    for (size_t i = 0; i < rows; ++i) {
      Row& row = rows_[i];
      const double depth = options_.save_at[k];
      if (!move.accepted[i] || row.next_save != k || depth > move.s_next[i] + depth_slack()) {
        continue;
      }
      inside[i] = SavesInside(row, move.s_next[i]);
      at_end[i] = !inside[i];
      theta[i] = inside[i] ? std::clamp((depth - move.s[i]) / move.eps[i], 0.0, 1.0) : 0.0;
      row.next_save += 1;
    }
    if (Any(at_end)) StoreSaved(k, move.z_next, at_end);
    if (!Any(inside)) continue;
    if (slopes.empty()) {
      slopes = move.slopes;
      // The last stage of a method that is first same as last is the slope at the end.
      if (own && slopes.size() < static_cast<size_t>(options_.tableau.stages())) {
        slopes.push_back(*first_slope_);
      }
    }
    const State between = Interpolate<Space>(
        *space_, options_.tableau, own ? Interpolant::kOwn : Interpolant::kHermite, move.eps, theta,
        z_, slopes, move.z_next, *first_slope_);
    const std::vector<bool> finite = space_->Finite(between);
    for (size_t i = 0; i < rows; ++i) inside[i] = inside[i] && finite[i];
    StoreSaved(k, between, inside);
  }
}

template <StateSpace Space>
void BatchSolver<Space>::StoreSaved(size_t k, const State& source, const std::vector<bool>& mask) {
  Store(result_.saved[k], source, mask);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (mask[i]) result_.reached[k][static_cast<size_t>(rows_[i].index)] = true;
  }
}

// Writes the masked active rows into a state of all rows.
template <StateSpace Space>
void BatchSolver<Space>::Store(State& target, const State& source, const std::vector<bool>& mask) {
  std::vector<int64_t> indices;
  for (const Row& row : rows_) indices.push_back(row.index);
  Scatter(*space_, source, indices, mask, target);
}

// Takes the rows that have ended out of the batch and into the result.
template <StateSpace Space>
void BatchSolver<Space>::Retire() {
  std::vector<bool> ended(rows_.size(), false);
  std::vector<int64_t> staying;
  std::vector<Row> left;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    ended[i] = row.ended.has_value();
    if (ended[i]) {
      result_.status[static_cast<size_t>(row.index)] = *row.ended;
      result_.depth[static_cast<size_t>(row.index)] = row.s;
    } else {
      staying.push_back(static_cast<int64_t>(i));
      left.push_back(row);
    }
  }
  if (left.size() == rows_.size()) return;
  Store(result_.state, z_, ended);
  rows_ = std::move(left);
  if (rows_.empty()) return;
  z_ = space_->Gather(z_, staying);
  if (z_first_) z_first_ = space_->Gather(*z_first_, staying);
  if (first_slope_) first_slope_ = space_->Gather(*first_slope_, staying);
}

}  // namespace hyperserve
