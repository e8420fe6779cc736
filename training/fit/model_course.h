// What the ways of training a base model differ in: the loss of a batch, of held-out rows, and the
// random numbers that choose the batches.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/layers/kind.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "training/data/recipe.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {

// What all ways of training need. CourseOf borrows it.
struct ModelTask {
  ModelSpec spec;
  training::ModelFit fit;
  TensorMap tensors;  // all of the model; on the device
  at::Device device;
};

// What a way of training gives to Optimise.
struct Course {
  std::string data_digest;
  std::function<absl::StatusOr<at::Tensor>(int iteration)> loss;
  // The same loss of the first fit.check_rows validation rows. Precondition: they are there.
  std::function<absl::StatusOr<at::Tensor>()> held_out_loss;
  // Random streams into a state, and back (Optimisation has the same two).
  std::function<void(TensorMap& state)> save;
  std::function<void(const TensorMap& state)> load;
};

// Cross-entropy for a classifier; the mean square error of a regressor's outputs, or of a
// trajectory's states at the depths of save_at; for a flow the likelihood or, where the recipe says
// so, flow matching. `model` has the weights that training starts from. `task` must outlive the
// result; the statistics of a batch norm at the stem's start are set in it. Fails as the readers of
// the data do.
absl::StatusOr<Course> CourseOf(ModelTask& task, const Recipe& recipe,
                                const std::string& data_folder,
                                const std::shared_ptr<const Model>& model);

// Its statistics are then those of the data, and no training changes them.
bool StartsWithBatchNorm(const LayerList& stem);

}  // namespace hyperserve
