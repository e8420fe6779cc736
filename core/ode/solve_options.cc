#include "core/ode/solve_options.h"

#include <cmath>

#include "core/base/status.h"
#include "core/plan/method.h"
#include "core/plan/step_grid.h"

namespace hyperserve {
namespace {

absl::Status CheckDepths(const char* name, const std::vector<double>& depths,
                         const SolveOptions& options) {
  for (size_t i = 0; i < depths.size(); ++i) {
    const double depth = depths[i];
    if (!(depth >= options.s0 && depth <= options.s1) || (i > 0 && depth <= depths[i - 1])) {
      return absl::InvalidArgumentError(absl::StrCat(name, " ", depth, " must lie in the span [",
                                                     options.s0, ", ", options.s1,
                                                     "] and above the depth before it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSolve(const SolveOptions& options) {
  const double span = options.s1 - options.s0;
  if (!std::isfinite(span) || span < 0.0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the span [", options.s0, ", ", options.s1,
                     "] runs backwards or is not finite; a solve backwards is one of the reflected "
                     "field"));
  }
  HS_RETURN_IF_ERROR(CheckDepths("save_at", options.save_at, options));
  HS_RETURN_IF_ERROR(CheckDepths("breaks", options.breaks, options));
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
