// Resolves the plan that a call asks for into the plan that runs on a pinned model: fills in the
// default, pins the generation, checks the limits and the range of the correction. Pure; any thread
// may call.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "server/calls/ask.h"
#include "server/calls/limits.h"
#include "server/registry/registry.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// What a call does with each of its rows, under any plan.
struct Task {
  Direction direction = Direction::kForward;
  std::array<double, 2> span = {0, 1};  // on the solver's own clock
  Entry entry = Entry::kInput;
  std::vector<double> save_at;  // strictly increasing depths within the span
  bool log_density = false;     // of each row, beside the state
  bool want_state = true;       // z(s1)
  bool want_depth = false;      // the depth at which each row ended
  bool want_outputs = false;    // y = h_y(z(s1))
};

struct ResolvedPlan {
  Plan plan;                                     // fixed or adaptive, never default
  std::string text;                              // canonical spelling
  std::string label;                             // of metrics; from a bounded set
  std::shared_ptr<const Generation> generation;  // pinned; null exactly where the plan is classical
  int64_t max_steps = 0;                         // limit on the steps of an adaptive row
};

// kInvalidArgument: the spelling is wrong, a limit is passed, or a classical plan pins a
// generation. kNotFound: the model has no such correction, or does not serve that generation of it.
// kFailedPrecondition: no generation is served, or the plan is outside the range or direction of
// the correction. kUnimplemented: an automatic plan, or a log-density of a hypersolved plan.
absl::StatusOr<ResolvedPlan> ResolvePlan(const AskTerms& terms, const ServedModel& model,
                                         const Task& task, const CallLimits& limits);

}  // namespace hyperserve
