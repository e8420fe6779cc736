// What the state of a fit is made of: tensors on the CPU by name, as one file holds them. Pure; any
// thread.
#pragma once

#include <ATen/ATen.h>

#include <limits>

#include "absl/status/status.h"
#include "core/model/net/net.h"
#include "training/optimise/curve.h"

namespace hyperserve {

// Names of the tensors. The first four stand before the names of the fit's own tensors.
namespace fit_state {
inline constexpr char kFitted[] = "tensor.", kMean[] = "adam.mean.", kSquare[] = "adam.square.",
                      kBest[] = "best.";
inline constexpr char kSteps[] = "adam.steps", kNumbers[] = "numbers", kCurve[] = "curve";
}  // namespace fit_state

// The parts of a state that are numbers; the tensor is in double.
struct FitNumbers {
  int iterations = 0;  // done
  int steps_back = 0;
  int best_iteration = 0, gain_iteration = 0;  // gain: the last one that counts for the patience
  double seconds = 0;                          // that the fit took so far
  double best_error = std::numeric_limits<double>::infinity();
  double gain_error = std::numeric_limits<double>::infinity();
};
// In the order of the members. Precondition of the way back: a tensor that TensorOf made.
at::Tensor TensorOf(const FitNumbers& numbers);
FitNumbers FitNumbersOf(const at::Tensor& tensor);

// Does a state from a file have the tensors that this fit's states have, but for the length of the
// curve, and counts from 0 to those of `most`? kFailedPrecondition names what differs.
absl::Status CheckState(const TensorMap& state, const TensorMap& wanted, const FitNumbers& most);

}  // namespace hyperserve
