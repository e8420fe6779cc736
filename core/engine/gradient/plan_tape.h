// A fixed plan, step by step to its end and back: the vector-Jacobian product of the discrete map.
//
// On the way to the end it keeps the state at the start of each step and, of the last steps, what
// LibTorch recorded within them. On the way back it takes the product of one step after the other;
// a step of which only the start was kept is made again first. So its memory is bounded by that of
// kRecordedEvaluationsMax evaluations of f and one state for each step. A table is one step.
//
// The steps are those of core/ode/step.h and solver_table.h: the end has the bits of a solve
// without a derivative. A row's numbers depend on that row only. All functions throw as LibTorch
// does, and want its inference mode off. Not thread-safe.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/readable/solve_setup.h"
#include "core/engine/readable/tensor_space.h"
#include "core/model/net/table.h"
#include "core/ode/solve_options.h"
#include "core/ode/solver_table.h"
#include "core/ode/space.h"

namespace hyperserve {

// Rows that start together, with what ReadRows, ReadConditions, ReadGuidance and ReadVectors return
// for them.
struct TapeStart {
  at::Tensor rows;
  at::Tensor condition;  // undefined: the model has none
  at::Tensor guidance;   // undefined: the spec has none
  at::Tensor cotangent;  // of z(s1); ignored where the spec has a log-density
  int64_t steps = 1;     // K, before knots cut them; of a learned solver its evaluations
};

// Belongs to one run, which calls Advance until it is true, then Take once.
class PlanTape {
 public:
  // Borrows both. Precondition: the spec is of kVjp and CheckSegment accepted the steps.
  PlanTape(const BatchSpec* spec, const SolveSetup* setup, TapeStart start);

  // Makes one step, to the end or back. True when there is none left.
  bool Advance();

  // After the last Advance. Rows that are not finite hold numbers without meaning.
  struct Result {
    TensorSpace::State end;
    at::Tensor rows;  // the product, of the rows as ReadRows returned them
    // Likewise; with knots of the values at them. Undefined: the model has none.
    at::Tensor condition;
    std::vector<bool> finite;
  };
  // Moves the results out: nothing else may be called afterwards but counts.
  Result Take();

  // Evaluations of f and of g for a row: of the plan, and again on the way back.
  struct Counts {
    int64_t evaluations = 0, corrections = 0;
    int64_t evaluations_again = 0, corrections_again = 0;
  };
  // By these alone: `again` is 0 where the whole plan fits within kRecordedEvaluationsMax, and
  // always of a table.
  Counts counts(int64_t row) const;

 private:
  using State = TensorSpace::State;
  // One step within LibTorch's graph. The tensors of `from` and `first` are its leaves.
  struct Recorded {
    State from, first, to;
  };

  void PlaceSteps(int64_t steps);
  int64_t step_slopes() const;
  int64_t recorded_steps() const;  // of the last steps
  // Evaluations of f of a row in its first steps.
  int64_t EvaluationsUntil(int64_t step, int64_t row) const;
  State StepFrom(int64_t step, const State& from, const State& first) const;
  Recorded Record(int64_t step) const;
  void StepToEnd();
  void StartBack();
  void StepBack();
  void BackThroughInputs();

  // Fixed after construction.
  const BatchSpec& spec_;
  const SolveSetup& setup_;
  const SolveOptions options_;
  const at::Tensor cotangent_;
  std::optional<SolverTable<TableCoefficient>> table_;
  int64_t steps_ = 1;           // to make, with those that knots cut; 1 of a table
  std::vector<double> depths_;  // where each step starts
  std::vector<double> sizes_;   // eps of each step
  // Where the rows pass the input map: the leaf before it, and what it made of it; else undefined.
  at::Tensor inputs_, mapped_;

  std::vector<State> starts_;       // of each step that is not walked back yet, and z
  std::vector<Recorded> recorded_;  // of the last of these steps
  int64_t made_ = 0;                // steps to the end
  std::vector<bool> finite_;
  // The cotangents of the state that stands at the start of the steps walked back.
  State cotangents_;
  at::Tensor of_first_;  // of z(s0), by the steps that read it; undefined: zeros
  Result result_;
};

}  // namespace hyperserve
