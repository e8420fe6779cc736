// The training loop that base models and corrections share: AdamW under a cosine schedule.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "programs/time_left.h"
#include "training/data/recipe.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {

// The learning rate of an iteration: it rises linearly over `warm_up` iterations, then falls as
// half a cosine from `rate` to `final_rate`, which the last iteration has.
double LearningRate(const training::Optimiser& optimiser, int iteration);

struct Optimisation {
  std::string what;  // name of the fitted net: progress lines begin with it
  training::Optimiser optimiser;
  std::vector<at::Tensor> parameters;
  // Tells the time that is left. A caller whose iterations hold other work than their step expects
  // that work there and notes its time; null: iterations take the same time.
  TimeLeft* time_left = nullptr;
  size_t step_kind = 0;  // of an iteration without that work
  // The loss of iteration 0, 1, ...: one number, differentiable in the parameters.
  std::function<absl::StatusOr<at::Tensor>(int iteration)> loss;
  // Text after the loss in a progress line.
  std::function<std::string()> figures = [] { return std::string(); };
  // Called after each iteration's step; a failure ends the loop.
  std::function<absl::Status(int iteration)> after = [](int) { return absl::OkStatus(); };
};

// Runs all iterations on the calling thread and reports progress. Convolutions of the loss and its
// gradient take TF32 on a GPU; `after` does not. kCancelled: a signal asked to
// stop. kInternal: the loss is not finite; this is checked every 50 iterations and at the last,
// since reading the loss waits for the GPU. Else it fails as `loss` and `after` do.
absl::Status Optimise(const Optimisation& optimisation);

}  // namespace hyperserve
