#include "core/ode/solve_options.h"

#include <cmath>

#include "core/base/status.h"

namespace hyperserve {
namespace {

absl::Status Validate(const SolveOptions&, const FixedSteps& fixed) {
  if (fixed.steps >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the number of steps is ", fixed.steps, "; it must be at least 1"));
}

absl::Status Validate(const SolveOptions& options, const ErrorControl& control) {
  if (!options.tableau.embedded()) {
    return absl::InvalidArgumentError(
        absl::StrCat("method '", Absl(NameOf(options.tableau.method).name),
                     "' has no embedded pair, so it cannot control its error; give steps"));
  }
  for (const double tolerance : {control.rtol, control.atol}) {
    if (!std::isfinite(tolerance) || tolerance <= 0.0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tolerance is ", tolerance, "; it must be finite and above zero"));
    }
  }
  if (control.max_steps >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the step limit is ", control.max_steps, "; it must be at least 1"));
}

}  // namespace

absl::Status ValidateSolve(const SolveOptions& options) {
  const double span = options.s1 - options.s0;
  if (!std::isfinite(span) || span <= 0.0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the span [", options.s0, ", ", options.s1,
                     "] does not grow; its ends must be finite and rise, and a solve backwards is "
                     "one of the reflected field"));
  }
  for (size_t i = 0; i < options.save_at.size(); ++i) {
    const double depth = options.save_at[i];
    if (!(depth >= options.s0 && depth <= options.s1) ||
        (i > 0 && depth <= options.save_at[i - 1])) {
      return absl::InvalidArgumentError(absl::StrCat("save_at ", depth, " must lie in the span [",
                                                     options.s0, ", ", options.s1,
                                                     "] and above the depth before it"));
    }
  }
  return std::visit([&](const auto& control) { return Validate(options, control); },
                    options.control);
}

}  // namespace hyperserve
