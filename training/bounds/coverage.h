// Shows what the bounds of a learned solver are worth: how many rows keep them, what they save, and
// what becomes of them on rows of another kind. Runs on the calling thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/plan/plan.h"
#include "training/bounds/bounded_plan.h"
#include "training/data/dataset.h"

namespace hyperserve {

// Borrows the runtime for the call.
struct CoverageOptions {
  DeviceRuntime* runtime = nullptr;
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> solver;
  Plan truth;  // adaptive; solved in tier exact
  int64_t batch = 256;
  std::vector<PlanCalibration> classical = {};  // what was measured of the model's own plans
};

// Solves the rows by every plan of the calibration that has a bound in tier exact, and by those
// classical plans in tier exact that no cheaper plan is as exact as, by what was measured. By
// ascending MACs. Fails as RunSolve does; kFailedPrecondition also where no plan has a bound.
absl::StatusOr<std::vector<BoundedPlan>> SolveWithBounds(const CoverageOptions& options,
                                                         const Calibration& calibration,
                                                         const SolveInputs& rows);

// A line for each plan: coverage, the bounds and the errors.
std::string CoverageTable(const std::vector<BoundedPlan>& plans);

// For the 99th percentile on the even rows of each plan that no cheaper one beats, and for some
// between it and that of the plan before: the plans per row with the fewest MACs among those with
// such a percentile, and what they and the plan alone come to on the odd rows. Beside it what
// better ladders would save: of those that know the true errors (oracle.h), on the even rows; and
// of those with thresholds of their own (tune.h), on the odd rows. Precondition: ascending MACs.
std::string SavingsTable(const std::vector<BoundedPlan>& plans);

// Rows of another kind, from U8 images [rows, 1, height, width]: turned by 30 degrees about the
// middle with zeros around, and with normal noise of deviation 0.2 added (values stay in [0, 1]).
// States are multiplied by 1.5, which draws the rows from the tail. Empty: none of these.
struct ShiftedRows {
  std::string name;
  SolveInputs rows;
};
// The noise has a seed of its own, so equal rows give equal shifted rows.
std::vector<ShiftedRows> Shifted(const SolveInputs& rows);

}  // namespace hyperserve
