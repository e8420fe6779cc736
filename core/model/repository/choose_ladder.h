// Chooses the plans of an automatic plan per row: each row ends with the first of them whose bound
// of its error is at most the target, and begins again with the next one otherwise. Pure; any
// thread.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/model/repository/choose_plan.h"

namespace hyperserve {

// By ascending MACs. The last plan is the cheapest whose 99th percentile of error is at most the
// target, since nothing checks its rows. Before it stand those plans with a bound that make the
// expected MACs of a row the fewest; none where that saves nothing. The expectation takes from each
// bound the share of the rows that it ends, and assumes that a row which one plan ends is ended by
// every plan that ends more rows. A plan with a heavy tail is never the last.
//
// kFailedPrecondition: no plan has such a percentile; the message names the best.
absl::StatusOr<std::vector<PlanOption>> ChooseLadder(double target_error,
                                                     const std::vector<PlanOption>& options);

}  // namespace hyperserve
