// Trains a correction of a base model and makes a generation of it.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "training/data/recipe.h"

namespace hyperserve {

struct HypersolverFitOptions {
  std::shared_ptr<const Model> model;
  std::string data_folder;
  at::Device device = at::kCPU;
  DeviceRuntime* runtime = nullptr;           // of the same device
  std::optional<GenerationFiles> start_from;  // weights to begin with: a refresh
  // Classical plans measured already (the model's calibration.json), for `wins`; empty: those of
  // the recipe are measured.
  std::vector<PlanCalibration> classical;
};

struct FittedHypersolver {
  GenerationFiles files;  // ready for WriteGeneration or Publish
  HypersolverSpec spec;
  Calibration calibration;                  // the correction's plans
  std::vector<PlanCalibration> base_plans;  // the base method at the same K, in the same order
};

// The spec's `steps` are those of the recipe's candidates at which the correction, measured on
// held-out rows as it is served, errs at most kClaimRatio times as much as the base method.
// kFailedPrecondition where there is none. A function of recipe, seed, base and device, but for the
// times in calibration.json.
inline constexpr double kClaimRatio = 0.95;
absl::StatusOr<FittedHypersolver> FitHypersolver(const Recipe& recipe,
                                                 const HypersolverFitOptions& options);

}  // namespace hyperserve
