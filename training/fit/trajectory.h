// Solves of the trainer: those that it differentiates and those that give the truth. They run the
// steps of core/ode on tensors of core/engine. All functions run on the calling thread.
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

// The space of solves in this direction. Against the field's own direction the clock is reflected.
TensorSpace::Options SpaceOptions(const ModelSpec& spec, Direction direction, Net field);

// z(s0) of these rows, float32, without autograd. Both functions fail with kInvalidArgument where
// the rows do not fit the model.
absl::StatusOr<at::Tensor> InitialState(const std::shared_ptr<const Model>& model,
                                        const SolveInputs& inputs, at::Device device);
// The conditions of these rows, float32; undefined where the model has none.
at::Tensor ConditionOf(const SolveInputs& inputs, at::Device device);
// The preprocessed rows, float32: the input of the stem.
absl::StatusOr<at::Tensor> StemInput(const std::shared_ptr<const Model>& model,
                                     const SolveInputs& inputs, at::Device device);

// K classical steps under autograd, and the slopes that the penalties need.
struct Trajectory {
  TensorSpace::State end;
  std::vector<at::Tensor> first_slopes;  // stage 1 of each step
  std::vector<LaterStage> later_stages;
};
// Equal steps: the plan's grid is not read. Precondition: a one-step method and steps >= 1. Memory
// grows with K, since autograd keeps every step.
Trajectory Follow(const TensorSpace& space, const FixedPlan& plan,
                  const std::array<double, 2>& span, TensorSpace::State start);

// The states at these depths by error-controlled steps, without autograd, of images some hundred at
// a time. `condition` as ConditionOf gives it. Reports progress. kInternal: a row did not converge.
// kCancelled: a signal asked to stop.
absl::StatusOr<std::vector<at::Tensor>> TrueStates(
    const TensorSpace& space, const AdaptivePlan& plan, const std::array<double, 2>& span,
    const std::vector<double>& depths, const at::Tensor& start, const at::Tensor& condition = {});

}  // namespace hyperserve
