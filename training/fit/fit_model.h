// Trains a base model: a classifier by cross-entropy, a flow by maximum likelihood with the exact
// trace, a regressor or a trajectory by the mean square error of its answers. All may have
// penalties that keep the field easy to solve in few steps. A flow may be
// trained by flow matching instead, without solves. Runs on the calling thread.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/net/model.h"
#include "training/data/recipe.h"
#include "training/optimise/checkpoints.h"
#include "training/optimise/curve.h"

namespace hyperserve {

// Beside the recipe. The defaults begin anew and keep no state.
struct ModelFitOptions {
  std::string start_from = {};         // bytes of the weights to start from; empty: drawn ones
  Checkpoints* checkpoints = nullptr;  // of this run; null: none
  // What the caller does afterwards, in seconds within a factor of four, by the untrained model;
  // null: nothing. Its failure ends the fit if it is kCancelled; else the rest is not known.
  std::function<absl::StatusOr<double>(const std::shared_ptr<const Model>& untrained)>
      seconds_after = nullptr;
};

// Written to no disk yet.
struct ModelFiles {
  std::string model_json;
  std::string weights;      // bytes of weights.safetensors
  std::string remark = {};  // for people; mostly empty
  Curve curve = {};
};

// The same recipe, data and device give the same bytes. Blocks for minutes to hours; writes no
// file.
//
// kInvalidArgument: the recipe lacks a part, its parts do not fit each other, or it has a batch
// norm that is not the first layer of the stem. (Its statistics are those of the training data and
// are taken before training.) kFailedPrecondition: the weights to start from are of another model.
// Also fails as Optimise does.
absl::StatusOr<ModelFiles> FitModel(const Recipe& recipe, const std::string& data_folder,
                                    at::Device device, const ModelFitOptions& options = {});

}  // namespace hyperserve
