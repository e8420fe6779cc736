// The fitted tables of a learned solver against the classical plans of their cost, on held-out
// rows.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/fit/fit_table.h"
#include "training/measure/rivals.h"

namespace hyperserve {

Plan LearnedPlan(int evaluations);

struct Contest {
  const FittedTable* fitted;
  PlanCalibration learned, rival;
  bool kept = false;
};

// About what HoldContests will take; for progress only. `tensors` are those of all tables of the
// spec, fitted or not. Fails as Hypersolver::FromBytes does.
absl::StatusOr<double> ContestSeconds(const Model& model, const HypersolverSpec& spec,
                                      const TensorMap& tensors, Rivals& rivals);

// Measures all tables, which must outlive the result, and their rivals. A table is kept if it errs
// clearly less than its rival, and less than those of fewer evaluations that are kept. Fails as
// Measurer::Measure does.
absl::StatusOr<std::vector<Contest>> HoldContests(const Model& model, const HypersolverSpec& spec,
                                                  const std::vector<FittedTable>& tables,
                                                  Rivals& rivals);

// What became of a table, for people.
std::string RemarkOf(const Contest& contest);

}  // namespace hyperserve
