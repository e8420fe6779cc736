// Rows in slots, each on a clock of its own, as the space of one step (core/ode/step.h). Used by
// one thread, that of the run.
//
// Depth, step size and the mask of each row stay on the device, so that a step waits for nothing.
// A step is taken on the unit clock: with s = s_row + theta eps_row, a row solves
// dz/dtheta = eps_row f(s, z) for theta from 0 to 1. Field returns f, Combine multiplies the sum of
// the terms by eps_row, and Correction returns eps_row^p g. So the weights of a method are the same
// for every row, and the functions of step.h are called with s = {0} and eps = {1}.
//
// Whether all rows have the same step size or each its own, the operations and their order are the
// same: a row's bits do not depend on which it is.
//
// A state is a tensor [slots, ...]. All functions throw as LibTorch does.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <span>
#include <vector>

#include "core/engine/readable/tensor_space.h"
#include "core/ode/space.h"

namespace hyperserve {

// One double for each slot.
struct SlotNumbers {
  double uniform = 0.0;  // that of every slot, unless `each` is defined
  at::Tensor each;       // F64 [slots]
};

// The step that is being taken. No slot's s + eps is above s1.
struct SlotClock {
  SlotNumbers s, eps;
  double s1 = 1.0;
  int order = 1;  // p of the method
};

// A CorrectedStepSpace, of one step. Borrows the options; the log-density is not carried.
class SlotSpace {
 public:
  using State = at::Tensor;

  // `like` has the shape, the dtype and the device of the states; `condition`, [slots, features],
  // is undefined where the model has none.
  SlotSpace(const TensorSpace::Options* options, const SlotClock& clock, const at::Tensor& like,
            at::Tensor condition);

  // theta and the weights hold one number, for all slots.
  int64_t Rows(const State& z) const { return z.size(0); }
  State Field(const PerRow& theta, const State& z) const;
  State Combine(const State& z, std::span<const Term<State>> terms) const;
  // Not a Combine, which would multiply by eps.
  State Minus(const State& a, const State& b) const { return at::sub(a, b); }
  State Zero(const State& z) const { return at::zeros_like(z); }
  State Correction(const PerRow& unit, const PerRow& theta, const State& z,
                   std::span<const State> slopes, const State& z_first) const;

 private:
  // The numbers in the dtype of the states, [slots].
  at::Tensor Each(const SlotNumbers& numbers) const;
  SlotNumbers DepthAt(double theta) const;
  // y times eps^power.
  State Scaled(const State& y, int power) const;

  const TensorSpace::Options* options_;
  SlotClock clock_;
  at::TensorOptions like_;
  at::Tensor condition_;
  int64_t slots_;
  at::Tensor eps_;  // of clock_.eps.each: in the dtype of the states, over their dimensions
};

static_assert(CorrectedStepSpace<SlotSpace>);

}  // namespace hyperserve
