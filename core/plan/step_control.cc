#include "core/plan/step_control.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace hyperserve {
namespace {

absl::Status CheckSteps(const char* what, int64_t steps) {
  if (steps >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " is ", steps, "; it must be at least 1"));
}

}  // namespace

absl::Status ValidateControl(const StepControl& control) {
  if (const auto* fixed = std::get_if<FixedSteps>(&control)) {
    return CheckSteps("number of steps", fixed->steps);
  }
  const ErrorControl& error = std::get<ErrorControl>(control);
  for (const double tolerance : {error.rtol, error.atol}) {
    if (!std::isfinite(tolerance) || tolerance <= 0.0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tolerance is ", tolerance, "; it must be finite and above zero"));
    }
  }
  return CheckSteps("step limit", error.max_steps);
}

}  // namespace hyperserve
