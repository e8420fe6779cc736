// A plan from the wire: checked once here, a value from then on. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {

// The plan that was asked for, not yet resolved against a model. kInvalidArgument for what no
// server would run: unknown methods and enum values, a tier beside text, steps < 1 ...
absl::StatusOr<Plan> PlanFromWire(const v1::Plan& wire);

}  // namespace hyperserve
