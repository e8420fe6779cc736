// Trains a correction of a base model and makes the files of a generation. Runs on the calling
// thread.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "training/data/recipe.h"
#include "training/optimise/checkpoints.h"
#include "training/optimise/curve.h"

namespace hyperserve {

// What it refers to must outlive the call.
struct HypersolverFitOptions {
  std::shared_ptr<const Model> model;
  std::string data_folder;
  at::Device device = at::kCPU;
  DeviceRuntime* runtime = nullptr;           // of the same device; must outlive the call
  std::optional<GenerationFiles> start_from;  // a refresh starts from its weights
  std::vector<GenerationFiles> joined = {};   // FitLearned: it fits nothing, takes their tables
  Checkpoints* checkpoints = nullptr;         // of this run; null: none
};

// Written to no disk yet: the caller hands `files` to WriteGeneration.
struct FittedHypersolver {
  GenerationFiles files;  // complete but for MANIFEST.json, which WriteGeneration makes
  HypersolverSpec spec;
  Calibration calibration;                  // the correction's plans
  std::vector<PlanCalibration> base_plans;  // the base method at the same K, in the same order
  std::vector<std::string> remarks;         // for people; of learned solvers one for each n
  std::vector<Curve> curves;
};

// What every generation of this fit tells of its making.
std::map<std::string, std::string> ProvenanceOf(const Recipe& recipe,
                                                const HypersolverFitOptions& options);

// Trains, measures and claims. The correction claims those K of the recipe at which its mean error
// on held-out rows, measured as it is served, is at most kClaimRatio times that of the base method.
// The same recipe, base and device give the same bytes, measured times apart. Blocks for minutes to
// hours; writes no file.
//
// kFailedPrecondition: it may claim no K, or `start_from` is of another method, direction, inputs
// or net. kInvalidArgument: the recipe lacks a part or does not fit the model. Also fails as
// Optimise does.
inline constexpr double kClaimRatio = 0.95;
absl::StatusOr<FittedHypersolver> FitHypersolver(const Recipe& recipe,
                                                 const HypersolverFitOptions& options);

}  // namespace hyperserve
