// The plans that the server chooses itself: automatic ones, and the model's default. Pure; any
// thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "server/calls/task.h"
#include "server/registry/served_model.h"

namespace hyperserve {

struct ServedPlan {
  Plan plan;           // fixed or adaptive, but of DefaultOf also automatic
  std::string reason;  // why this plan runs and not the one that was named; empty: it is that one
};

// The default plan of a model. Where it is hypersolved and not served, the best calibrated
// classical plan stands in: the cheapest within the calibration's default_error, else the most
// accurate, else the fallback of all models.
ServedPlan DefaultOf(const ServedModel& model);

// The plan that runs for `asked`, in the tier that was asked for. Plans that name their method are
// returned as they are. An automatic plan chooses among the measured plans that are served, by the
// times on this device. What was measured holds for the model's own span and for the direction of
// Classify and Sample; densities and states on the way are possible only under some plans. A
// default plan that is not possible for the task is replaced by the fallback of all models.
//
// kFailedPrecondition: no measured plan meets an automatic plan; the message says what is possible.
absl::StatusOr<ServedPlan> PlanFor(const Plan& asked, const ServedModel& model, const Task& task);

}  // namespace hyperserve
