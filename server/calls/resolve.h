// Resolves the plan that a call asks for into the plan that runs on a pinned model: fills in the
// default, pins the generation, checks the limits and the range of the correction. Pure; any thread
// may call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "server/calls/ask.h"
#include "server/calls/limits.h"
#include "server/calls/task.h"
#include "server/registry/registry.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// A plan that can run now; it stays valid when the model is swapped, since the generation is
// pinned.
struct ResolvedPlan {
  Plan plan;                                     // fixed or adaptive, never default
  std::string text;                              // canonical spelling
  std::string reason;                            // as ServedPlan's
  std::optional<double> error;                   // mean, as calibrated; nullopt: not measured
  std::string label;                             // of metrics; from a bounded set
  bool is_default = false;                       // the plan is the model's default
  std::shared_ptr<const Generation> generation;  // pinned; null exactly where the plan is classical
  int64_t max_steps = 0;                         // limit on the steps of an adaptive row
  // The bound of a row's error over its distance. nullopt: rows get no bound.
  std::optional<double> bound_factor = std::nullopt;
  // An automatic plan per row, whose spelling `text` is: rows go on with the later plans, one after
  // the other, while their bound exceeds this target.
  std::optional<double> row_target = std::nullopt;
  std::vector<ResolvedPlan> later = {};
};

// kInvalidArgument: the spelling is wrong, a limit is passed, or a classical plan pins a
// generation. kNotFound: the model has no such correction, or does not serve that generation of it.
// kFailedPrecondition: no generation is served, or the plan is outside the range or direction of
// the correction, or has no derivative and one is wanted, or no measured plan meets an automatic
// one, or a bound of each row is wanted that the plan does not have.
absl::StatusOr<ResolvedPlan> ResolvePlan(const AskTerms& terms, const ServedModel& model,
                                         const Task& task, const CallLimits& limits);

}  // namespace hyperserve
