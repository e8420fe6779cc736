// From the plan that a call asks for to the one that will run on a pinned model: default filled in,
// generation pinned, limits and the correction's range checked. Pure.
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

// What a call does with each of its rows, whatever the plan.
struct Task {
  Direction direction = Direction::kForward;
  std::array<double, 2> span = {0, 1};  // the solver's own clock
  Entry entry = Entry::kInput;
  std::vector<double> save_at;  // strictly increasing depths within the span
  bool log_density = false;     // is carried, beside the state
  bool want_state = true;       // z(s1)
  bool want_outputs = false;    // y = h_y(z(s1))
};

struct ResolvedPlan {
  Plan plan;                                     // fixed or adaptive
  std::string text;                              // canonical spelling
  std::string label;                             // what metrics call it
  std::shared_ptr<const Generation> generation;  // set exactly where the plan is hypersolved
  int64_t max_steps = 0;                         // of an adaptive row
};

// Codes as in the wire's table: kInvalidArgument (limits), kNotFound (no such hypersolver or
// generation), kFailedPrecondition (refused correction, outside its range), kUnimplemented
// (automatic plans, fast tier, log-density of hypersolved plans).
absl::StatusOr<ResolvedPlan> ResolvePlan(const AskTerms& terms, const ServedModel& model,
                                         const Task& task, const CallLimits& limits);

}  // namespace hyperserve
