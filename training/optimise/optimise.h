// The training loop that all fits share: AdamW under a cosine schedule. It keeps the tensors of the
// least held-out error, stops where that error falls no more or the time is over, steps back from
// numbers that are not finite, and can be gone on with after a kill.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/net/net.h"
#include "programs/time_left.h"
#include "training/data/recipe.pb.h"
#include "training/optimise/checkpoints.h"
#include "training/optimise/curve.h"
#include "training/optimise/schedule.h"

namespace hyperserve {

// A state is kept in memory every kKeepEvery iterations, if all of it is finite. Where the loss or
// a tensor is not finite, the loop goes back to the last kept state, with kRateAfterStepBack times
// the rate from there to the end; the kStepsBackMost-th time is the last one.
inline constexpr int kKeepEvery = 50;
inline constexpr int kStepsBackMost = 8;
inline constexpr double kRateAfterStepBack = 0.5;
// A held-out error counts as less, for optimiser.patience, if it is less by this share.
inline constexpr double kPlateauGain = 0.001;

// The loop borrows it for the call and changes the fitted tensors in place.
struct Optimisation {
  std::string what;  // name of the fitted net: progress lines begin with it
  training::Optimiser optimiser;
  TensorMap tensors;  // fitted are those that require a gradient
  // The loss of iteration 0, 1, ...: one number, differentiable in the fitted tensors. It is called
  // again for an iteration that the loop went back to.
  std::function<absl::StatusOr<at::Tensor>(int iteration)> loss;
  // Called after each iteration's step; a failure ends the loop.
  std::function<absl::Status(int iteration)> after = [](int) { return absl::OkStatus(); };

  // The error of the tensors on held-out rows, before the first iteration, then after every
  // check_every and after the last; null: the last tensors are the result.
  std::function<absl::StatusOr<double>()> held_out;
  int check_every = 1;
  std::string error_name = "error";  // in progress lines

  // What an iteration depends on beside the tensors and its number, as random streams: `save` puts
  // it into a state, `load` goes back to that of a state. Tensors are on the CPU.
  std::function<void(TensorMap& state)> save = [](TensorMap&) {};
  std::function<void(const TensorMap& state)> load = [](const TensorMap&) {};
  // Keeps the loop's state under the name; null: nowhere.
  Checkpoints* checkpoints = nullptr;
  std::string checkpoint = {};

  // What optimiser.seconds are counted by.
  std::function<double()> clock = SteadySeconds;
  // Tells the time that is left. A caller whose iterations hold other work than their step expects
  // that work there and notes its time; null: all iterations take the same time.
  TimeLeft* time_left = nullptr;
  size_t step_kind = 0, check_kind = 0;  // an iteration without that work; a held-out error
};

// What the loop came to. The tensors are copies.
struct Optimised {
  TensorMap tensors;                  // on the CPU: of the least held-out error, else the last ones
  double start_error = kNotMeasured;  // held out
  double error = kNotMeasured;
  int best_iteration = 0;
  int iterations = 0, planned = 0;  // fewer than planned: `ending` tells why
  std::string ending = {};          // "stopped at a plateau"; empty: it ran all iterations
  int steps_back = 0;
  std::vector<CurvePoint> curve;  // a point every kKeepEvery iterations and at each check

  // What was out of the ordinary, for people: "stopped at a plateau ...; ..."; else empty.
  std::string Remark() const;
};

// Runs on the calling thread and reports progress. Convolutions of the loss and its gradient take
// TF32 on a GPU; `held_out` and `after` do not. Gone on from a checkpoint, it returns on a CPU the
// bytes of a run that was never stopped. kCancelled: a signal asked to stop; the state is in a
// checkpoint if the run has lasted long enough. kInternal: numbers are not finite, from the start
// or after kStepsBackMost steps back. Else it fails as `loss`, `held_out`, `after` and
// Checkpoints::Load do.
absl::StatusOr<Optimised> Optimise(const Optimisation& optimisation);

}  // namespace hyperserve
