// Trains a base model: a classifier by cross-entropy, a flow by maximum likelihood with the exact
// trace, either with the penalties that keep its field easy to follow in few steps.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "absl/status/statusor.h"
#include "training/data/recipe.h"

namespace hyperserve {

struct ModelFiles {
  std::string model_json;
  std::string weights;  // bytes of weights.safetensors
};

// A function of the recipe, the data and the device: the same bytes each time. kInvalidArgument
// where the recipe lacks a part or holds a layer that is not trained here (batch norm elsewhere
// than first in the stem: its statistics are those of the training data, taken before it starts).
absl::StatusOr<ModelFiles> FitModel(const Recipe& recipe, const std::string& data_folder,
                                    at::Device device);

}  // namespace hyperserve
