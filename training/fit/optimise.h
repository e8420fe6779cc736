// The training loop that base models and corrections share: AdamW under a cosine schedule.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "training/data/recipe.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {

// The rate of an iteration: a linear rise over `warm_up`, then half a cosine from `rate` to
// `final_rate`, which is that of the last iteration.
double LearningRate(const training::Optimiser& optimiser, int iteration);

struct Optimisation {
  std::string what;  // is fitted: how its progress begins
  training::Optimiser optimiser;
  std::vector<at::Tensor> parameters;
  // The loss of iteration 0, 1, ...: one number, differentiable in the parameters.
  std::function<absl::StatusOr<at::Tensor>(int iteration)> loss;
  // Beside the loss, what a progress line shows.
  std::function<std::string()> figures = [] { return std::string(); };
  // After each iteration's step; a failure ends the loop.
  std::function<absl::Status(int iteration)> after = [](int) { return absl::OkStatus(); };
};

// Tells its progress. kCancelled after a request to stop; kInternal where the loss is no longer
// finite (looked at now and then: reading it waits for the GPU).
absl::Status Optimise(const Optimisation& optimisation);

}  // namespace hyperserve
