// Solves that the trainer differentiates through or takes its truth from: the steps of core/ode
// over the tensors of core/engine.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/readable/tensor_space.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/data/dataset.h"
#include "training/fit/loss.h"

namespace hyperserve {

// The space of solves in this direction (against the field's own: reflected).
TensorSpace::Options SpaceOptions(const ModelSpec& spec, Direction direction, Net field);

// z(s0) of these rows, float32, outside autograd.
absl::StatusOr<at::Tensor> InitialState(const std::shared_ptr<const Model>& model,
                                        const SolveInputs& inputs, at::Device device);
// The rows as the stem takes them (preprocessed), float32.
absl::StatusOr<at::Tensor> StemInput(const std::shared_ptr<const Model>& model,
                                     const SolveInputs& inputs, at::Device device);

// K classical steps under autograd, with what the penalties look at.
struct Trajectory {
  TensorSpace::State end;
  std::vector<at::Tensor> first_slopes;  // stage 1 of each step
  std::vector<LaterStage> later_stages;
};
Trajectory Follow(const TensorSpace& space, const FixedPlan& plan,
                  const std::array<double, 2>& span, TensorSpace::State start);

// States at these depths by error-controlled steps, outside autograd. kInternal where a row did
// not converge.
absl::StatusOr<std::vector<at::Tensor>> TrueStates(const TensorSpace& space,
                                                   const AdaptivePlan& plan,
                                                   const std::array<double, 2>& span,
                                                   const std::vector<double>& depths,
                                                   const at::Tensor& start);

}  // namespace hyperserve
