// Chooses among measured plans: what an automatic plan runs, and the default plan that calibration
// writes down. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/repository/calibration.h"
#include "core/plan/plan.h"

namespace hyperserve {

// A plan that could run. The calibration is borrowed.
struct PlanOption {
  const PlanCalibration* measured = nullptr;
  double seconds = 0;  // of the whole request, without its time in a queue
};

// With a target: of the plans whose mean error is at most the target, within the time budget where
// there is one, that of fewest MACs; MACs within 5 % of the fewest count as equal, and among those
// the least error is chosen. With a time budget alone: of the plans within it, that of least error.
// Ties go to the earlier option. A plan with a heavy tail is never chosen. kFailedPrecondition: no
// plan meets this; the message says what is possible.
absl::StatusOr<PlanOption> ChoosePlan(const AutoPlan& wanted,
                                      const std::vector<PlanOption>& options);

// The time of `rows` rows under a plan, from the times of its batches: linear between two sizes, in
// proportion to the rows above the largest one. A plan without such times has its seconds_per_row.
double SecondsOf(const PlanCalibration& plan, int64_t rows);

}  // namespace hyperserve
