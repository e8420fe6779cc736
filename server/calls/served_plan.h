// The plans that the server chooses itself: automatic ones, and the model's default. Pure; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "server/calls/task.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// What PlanFor and DefaultOf return.
struct ServedPlan {
  Plan plan;           // fixed or adaptive, but of DefaultOf also automatic
  std::string reason;  // why this plan runs and not the one that was named; empty: it is that one
  // An automatic plan per row: as it was asked for, and the plans with which rows go on whose bound
  // of their error exceeds its target.
  std::optional<AutoPlan> per_row = std::nullopt;
  std::vector<Plan> later = {};
};

// Does what was measured of the plans hold for the task? It was measured on the model's own span
// and in the direction of Classify and Sample.
bool IsMeasuredTask(const ServedModel& model, const Task& task);

// The default plan of a model. Where it is hypersolved and not served, the best calibrated
// classical plan stands in: the cheapest within the calibration's default_error, else the most
// accurate, else the fallback of all models.
ServedPlan DefaultOf(const ServedModel& model);

// The plan that runs for `asked`, in the tier that was asked for. Plans that name their method are
// returned as they are. An automatic plan chooses among the measured plans that are served, by the
// times on this device; one per row chooses several (ChooseLadder). What was measured holds for
// some tasks only (IsMeasuredTask); densities, states on the way and bounds are possible only under
// some plans. A default plan that is not possible for the task is replaced by the fallback of all
// models.
//
// kFailedPrecondition: no measured plan meets an automatic plan; the message says what is possible.
absl::StatusOr<ServedPlan> PlanFor(const Plan& asked, const ServedModel& model, const Task& task);

}  // namespace hyperserve
