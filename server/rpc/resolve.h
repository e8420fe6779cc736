// From the plan that a request asks for to the one that will run on a pinned model: default filled
// in, generation pinned, limits and the correction's range checked. Pure.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "server/registry/served_model.h"
#include "server/rpc/limits.h"

namespace hyperserve {

// What the call is going to do with the plan.
struct PlanUse {
  Direction direction = Direction::kForward;
  std::array<double, 2> span = {0, 1};
  bool log_density = false;  // carries a log-density
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
absl::StatusOr<ResolvedPlan> ResolvePlan(const v1::SolveOptions& options, const ServedModel& model,
                                         const PlanUse& use, const CallLimits& limits);

}  // namespace hyperserve
