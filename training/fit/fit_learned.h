// Fits a learned solver: one table for each n of the recipe, with its readout, all to the same true
// solutions. Runs on the calling thread.
#pragma once

#include "absl/status/statusor.h"
#include "training/data/recipe.h"
#include "training/fit/fit_hypersolver.h"

namespace hyperserve {

// Fits, measures and claims, for a recipe with solver.learned. A table of n is kept if its mean
// error on held-out rows, measured as it is served, is at most kClaimRatio times that of the best
// classical plan of no greater MACs, and below that of every kept table of fewer evaluations;
// `remarks` of the result tell of each. `base_plans` are those classical plans. `start_from` gives
// one more start to each n that it has with the same coefficients, inputs and net. With `joined`
// each table is that of the first of those generations that has it as the recipe describes it;
// none: kFailedPrecondition. Else bytes, blocking and failures are those of FitHypersolver.
absl::StatusOr<FittedHypersolver> FitLearned(const Recipe& recipe,
                                             const HypersolverFitOptions& options);

}  // namespace hyperserve
