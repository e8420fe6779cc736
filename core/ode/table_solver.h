// Solves a batch of initial value problems by tables, evaluation by evaluation. Rows join and leave
// between any two evaluations; rows under different tables, or at different evaluations of theirs,
// share the evaluation of f. The twin of BatchSolver for the methods that run from a table: what
// solver.h says of rows, numbers, pieces and failures holds here too, except that a row saves no
// states on its way.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/ode/masked.h"
#include "core/ode/solve_options.h"
#include "core/ode/solve_result.h"
#include "core/ode/solver_table.h"
#include "core/ode/space.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// Made by the readable run for ab2 and learned solvers.
template <TableSpace Space>
class TableSolver {
 public:
  using State = typename Space::State;
  using Table = SolverTable<typename Space::Coefficient>;
  // The table of rows that ask for this number of steps (ab2) or evaluations (learned).
  using TableOf = std::function<Table(int64_t steps)>;

  // Borrows the space. Every table has the span [s0, s1].
  TableSolver(const Space* space, TableOf table_of, double s0, double s1)
      : space_(space), table_of_(std::move(table_of)), s0_(s0), s1_(s1) {}

  // As BatchSolver's. Precondition: the controls are FixedSteps that `table_of` knows.
  int64_t Admit(State z0, std::span<const Cohort> cohorts);
  // Between two evaluations there is nothing half done, so the rows leave at once.
  void Drop(int64_t first, int64_t count);
  bool Advance(int64_t max_evaluations);
  // As BatchSolver's: a result may still wait for TakeFinished.
  bool done() const { return parties_.empty(); }
  std::vector<SolveResult<State>> TakeFinished() { return std::exchange(finished_, {}); }

 private:
  // Rows that began together under one table.
  struct Party {
    std::vector<int64_t> numbers;
    std::shared_ptr<const Table> table;
    TableProgress<Space> progress;
    bool ended() const { return progress.evaluated == table->evaluations(); }
  };

  void Evaluate();
  void Retire();
  void Report(const Party& party);
  State Part(const State& all, size_t first, size_t count) const;

  // Fixed after construction.
  const Space* space_;
  TableOf table_of_;
  double s0_, s1_;

  std::vector<Party> parties_;
  int64_t next_number_ = 0;
  std::vector<SolveResult<State>> finished_;
};

// Rows [first, first + count); the state itself where these are all.
template <TableSpace Space>
typename Space::State TableSolver<Space>::Part(const State& all, size_t first, size_t count) const {
  if (count == static_cast<size_t>(space_->Rows(all))) return all;
  std::vector<int64_t> places(count);
  std::iota(places.begin(), places.end(), static_cast<int64_t>(first));
  return space_->Gather(all, places);
}

// Neighbouring cohorts of the same number become one party, so that they share a table.
template <TableSpace Space>
int64_t TableSolver<Space>::Admit(State z0, std::span<const Cohort> cohorts) {
  const int64_t first = next_number_;
  size_t place = 0;
  for (auto cohort = cohorts.begin(); cohort != cohorts.end();) {
    const int64_t steps = std::get<FixedSteps>(cohort->control).steps;
    size_t rows = 0;
    for (; cohort != cohorts.end() && std::get<FixedSteps>(cohort->control).steps == steps;
         ++cohort) {
      rows += static_cast<size_t>(cohort->rows);
    }
    auto table = std::make_shared<const Table>(table_of_(steps));
    Party party{.numbers = std::vector<int64_t>(rows),
                .table = table,
                .progress = BeginTable(*space_, *table, Part(z0, place, rows))};
    std::iota(party.numbers.begin(), party.numbers.end(), next_number_);
    parties_.push_back(std::move(party));
    next_number_ += static_cast<int64_t>(rows);
    place += rows;
  }
  assert(place == static_cast<size_t>(space_->Rows(z0)));
  return first;
}

template <TableSpace Space>
void TableSolver<Space>::Drop(int64_t first, int64_t count) {
  for (Party& party : parties_) {
    std::vector<int64_t> staying, numbers;
    for (size_t i = 0; i < party.numbers.size(); ++i) {
      if (party.numbers[i] >= first && party.numbers[i] - first < count) continue;
      staying.push_back(static_cast<int64_t>(i));
      numbers.push_back(party.numbers[i]);
    }
    if (numbers.size() == party.numbers.size()) continue;
    party.numbers = std::move(numbers);
    if (staying.empty()) continue;
    TableProgress<Space>& progress = party.progress;
    progress.first = space_->Gather(progress.first, staying);
    for (State& x : progress.later) x = space_->Gather(x, staying);
    for (State& slope : progress.slopes) slope = space_->Gather(slope, staying);
    if (progress.difference) progress.difference = space_->Gather(*progress.difference, staying);
  }
  std::erase_if(parties_, [](const Party& party) { return party.numbers.empty(); });
}

template <TableSpace Space>
bool TableSolver<Space>::Advance(int64_t max_evaluations) {
  Retire();  // tables without evaluations
  for (int64_t i = 0; i < max_evaluations && !done(); ++i) {
    Evaluate();
    Retire();
  }
  return done();
}

// One evaluation of f on the points of all parties, joined in their order; each takes its part.
template <TableSpace Space>
void TableSolver<Space>::Evaluate() {
  PerRow depth;
  State points = PointOf(parties_[0].progress);
  for (size_t i = 0; i < parties_.size(); ++i) {
    const Party& party = parties_[i];
    if (i > 0) points = space_->Join(points, PointOf(party.progress));
    depth.insert(depth.end(), party.numbers.size(),
                 party.table->nodes[static_cast<size_t>(party.progress.evaluated)]);
  }
  const State slopes = space_->Field(depth, points);
  size_t place = 0;
  for (Party& party : parties_) {
    const size_t rows = party.numbers.size();
    PushSlope(*space_, *party.table, Part(slopes, place, rows), party.progress);
    place += rows;
  }
}

// Reports the parties whose tables are done, and forgets them.
template <TableSpace Space>
void TableSolver<Space>::Retire() {
  for (const Party& party : parties_) {
    if (party.ended()) Report(party);
  }
  std::erase_if(parties_, [](const Party& party) { return party.ended(); });
}

// A table is one step: a row either converges, or a number on its way was not finite and it stays
// where it began.
template <TableSpace Space>
void TableSolver<Space>::Report(const Party& party) {
  State end = EndOfTable(*space_, *party.table, party.progress);
  PerRow distances;
  if (party.table->distance) {
    distances = DistancesOfTable(*space_, *party.table, party.progress, end);
  }
  space_->AfterStep(end);
  const std::vector<bool> finite = space_->Finite(end);
  const int evaluations = party.table->evaluations();
  const RowCounts counts{.nfe = evaluations,
                         .correction_evaluations = space_->HasReadout(evaluations) ? 1 : 0};
  SolveResult<State> result{.rows = party.numbers,
                            .state = Choose(*space_, finite, std::move(end), party.progress.first),
                            .status = {},
                            .depth = {},
                            .counts = std::vector<RowCounts>(finite.size(), counts),
                            .distance = std::move(distances),
                            .saved = {},
                            .reached = {}};
  for (size_t i = 0; i < finite.size(); ++i) {
    result.status.push_back(finite[i] ? RowStatus::kConverged : RowStatus::kNonFinite);
    result.depth.push_back(finite[i] ? s1_ : s0_);
    result.counts[i].accepted = finite[i] ? 1 : 0;
  }
  finished_.push_back(std::move(result));
}

}  // namespace hyperserve
