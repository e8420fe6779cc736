// The operations that a solver needs on a batch of rows. The solvers of this folder are templates
// over them, so one code runs on vectors of doubles (tests), on LibTorch tensors (core/engine) and
// on tensors under autograd (training/).
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

namespace hyperserve {

// One double for each row of the batch: depths s, step sizes eps, weights. Always double, also
// where states are float32.
using PerRow = std::vector<double>;

// One term of a linear combination: weights[row] * slope[row]. Borrowed from the caller.
template <class State>
struct Term {
  const PerRow* weights;
  const State* slope;
};

// A Space holds the field f. It is immutable and keeps no progress of a solve. In every function
// the result of a row depends on the values of that row only. No function fails: numbers that are
// not finite spread, and Finite finds them. A space may throw exceptions of its library, which pass
// through the solver.
//
// What one step needs of it (step.h):
template <class S>
concept StepSpace = requires(const S& space, const typename S::State& z, const PerRow& per_row,
                             std::span<const Term<typename S::State>> terms) {
  { space.Rows(z) } -> std::convertible_to<int64_t>;
  // f(s, z), with one depth s for each row.
  { space.Field(per_row, z) } -> std::same_as<typename S::State>;
  // z + sum_j weights_j * slope_j, row by row, summed in the order given.
  { space.Combine(z, terms) } -> std::same_as<typename S::State>;
  // The first slope less the second.
  { space.Minus(z, z) } -> std::same_as<typename S::State>;
  // A state of zeros of the same shape.
  { space.Zero(z) } -> std::same_as<typename S::State>;
};

// What a solver needs of it (solver.h):
template <class S>
concept StateSpace = StepSpace<S> &&
    requires(const S& space, const typename S::State& z, typename S::State& mutable_z,
             const std::vector<bool>& mask, const std::vector<int64_t>& indices,
             const PerRow& tolerances) {
  // Row i of the first state where mask[i] is set, else row i of the second.
  { space.Where(mask, z, z) } -> std::same_as<typename S::State>;
  // The rows at these indices, in this order; at least one.
  { space.Gather(z, indices) } -> std::same_as<typename S::State>;
  // The rows of the first state, then those of the second.
  { space.Join(z, z) } -> std::same_as<typename S::State>;
  // For each row: is every number finite?
  { space.Finite(z) } -> std::same_as<std::vector<bool>>;
  // Arguments e, z0, z1, rtol, atol. For each row, in double and with its own tolerances:
  // sqrt(mean_i (e_i / (atol + rtol max(|z0_i|, |z1_i|)))^2); NaN where a number of e, z0 or z1 is
  // not finite, infinite where the sum overflows. e is a state that holds an error estimate.
  { space.ErrorNorms(z, z, z, tolerances, tolerances) } -> std::same_as<PerRow>;
  // Called once after each fixed step, before its rows are checked. A space that carries tangents
  // of the step map adds log|det| to the row's log-density here and resets the tangents. Other
  // spaces do nothing.
  { space.AfterStep(mutable_z) } -> std::same_as<void>;
};

// A space that also holds a correction g. slopes[0] is stage 1, slopes[1] stage 2 where the method
// has one; z_first = z(s0) is the state at the start of the whole solve (the input "state_0").
template <class S>
concept CorrectedStepSpace = StepSpace<S> &&
    requires(const S& space, const typename S::State& z, const PerRow& per_row,
             std::span<const typename S::State> slopes) {
  // g(eps, s, z, slopes, z_first)
  { space.Correction(per_row, per_row, z, slopes, z) } -> std::same_as<typename S::State>;
};

template <class S>
concept CorrectedSpace = StateSpace<S> && CorrectedStepSpace<S>;

}  // namespace hyperserve
