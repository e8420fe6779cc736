// What a solver needs of a batch of rows, and no more: the one seam between the solvers here and
// whatever holds the numbers (a vector of doubles in the tests, LibTorch tensors in core/engine,
// tensors under autograd in training/).
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

namespace hyperserve {

// One double for each row of the batch: depths s, step sizes eps, weights. Always double, whatever
// the state's type.
using PerRow = std::vector<double>;

// One term of a linear combination: weights[row] * slope[row].
template <class State>
struct Term {
  const PerRow* weights;
  const State* slope;
};

// A Space's functions are const: a Space holds what f is, never the progress of a solve.
// Promise: what happens to a row in any of them depends on that row's values only.
template <class S>
concept StateSpace = requires(const S& space, const typename S::State& z,
                              typename S::State& mutable_z, const PerRow& per_row,
                              std::span<const Term<typename S::State>> terms,
                              const std::vector<bool>& mask, const std::vector<int64_t>& indices,
                              const PerRow& tolerances) {
  { space.Rows(z) } -> std::convertible_to<int64_t>;
  // f(s, z), with one s for each row.
  { space.Field(per_row, z) } -> std::same_as<typename S::State>;
  // z + sum_j weights_j * slope_j, row by row, summed in the order given.
  { space.Combine(z, terms) } -> std::same_as<typename S::State>;
  // Row i of the first state where mask[i], else of the second.
  { space.Where(mask, z, z) } -> std::same_as<typename S::State>;
  // The rows at these indices, in this order.
  { space.Gather(z, indices) } -> std::same_as<typename S::State>;
  // The rows of the first state, then those of the second.
  { space.Join(z, z) } -> std::same_as<typename S::State>;
  // Per row: is every number in it finite?
  { space.Finite(z) } -> std::same_as<std::vector<bool>>;
  // Per row, in double, with tolerances of its own:
  // sqrt(mean_i (e_i / (atol + rtol max(|z0_i|, |z1_i|)))^2); NaN where e, z0 or z1 is not finite,
  // infinite where it overflows. Arguments: e, z0, z1, rtol, atol. e is a state that holds an error
  // (Combine of a zero with the pair's weights).
  { space.ErrorNorms(z, z, z, tolerances, tolerances) } -> std::same_as<PerRow>;
  // A state of zeros of the same shape.
  { space.Zero(z) } -> std::same_as<typename S::State>;
  // Called once after each accepted step of a fixed-step solve: a space that carries tangents of
  // the step map adds log|det| to the row's log-density here and resets the tangents. Most spaces
  // do nothing.
  { space.AfterStep(mutable_z) } -> std::same_as<void>;
};

// A space that also knows a hypersolver net g. slopes[0] is stage 1, slopes[1] stage 2 (where the
// method has one); z_first is the state at the start of the whole solve (the published input
// "state_0").
template <class S>
concept CorrectedSpace = StateSpace<S> &&
    requires(const S& space, const typename S::State& z, const PerRow& per_row,
             std::span<const typename S::State> slopes) {
  // g(eps, s, z, slopes, z_first)
  { space.Correction(per_row, per_row, z, slopes, z) } -> std::same_as<typename S::State>;
};

}  // namespace hyperserve
