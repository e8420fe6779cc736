#include "core/ode/solve_options.h"

#include <cmath>

#include "core/base/status.h"
#include "core/plan/method.h"
#include "core/plan/step_grid.h"

namespace hyperserve {
absl::Status ValidateSolve(const SolveOptions& options) {
  const double span = options.s1 - options.s0;
  if (!std::isfinite(span) || span < 0.0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the span [", options.s0, ", ", options.s1,
                     "] runs backwards or is not finite; a solve backwards is one of the reflected "
                     "field"));
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
  if (options.stepping == Stepping::kFixed) return absl::OkStatus();
  if (options.hypersolved) {
    return absl::InvalidArgumentError("error control takes no correction; give steps");
  }
  if (options.tableau.embedded()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("method '", Absl(NameOf(options.tableau.method).name),
                   "' has no embedded pair, so it cannot control its error; give steps"));
}

double DepthOfStep(const SolveOptions& options, int64_t step, int64_t steps) {
  if (step == steps) return options.s1;
  const double span = options.s1 - options.s0;
  if (!options.grid.uniform()) return options.s0 + span * ShareAt(options.grid, step, steps);
  return options.s0 + span * static_cast<double>(step) / static_cast<double>(steps);
}

}  // namespace hyperserve
