// How far a plan lands from a reference, and what it costs: the one measurement of the daemon's
// gate and of the trainer. Pure but for the solver that is passed in: no engine, no clock, no
// limits of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"

namespace hyperserve {

// Solves one segment from start to end. On which engine, how long and by whose watch is the
// caller's; what it fails with is passed on.
using SolveSegment = std::function<absl::StatusOr<BatchResult>(
    const BatchSpec& spec, const StepPlan& plan, const Segment& segment)>;

// Rows in order, also those that did not converge.
struct Solution {
  std::vector<RowStatus> status;
  HostTensor state;                                      // [rows, state...]
  HostTensor outputs;                                    // [rows, outputs], where wanted
  HostTensor log_density;                                // F64 [rows], where asked for
  double nfe = 0, correction_evaluations = 0, macs = 0;  // per row, mean
};

// Solves `rows` ([rows, ...]; at least one) under the plan, `batch_rows` at once.
absl::StatusOr<Solution> SolveRows(const BatchSpec& spec, const StepPlan& plan,
                                   const TensorView& rows, int64_t batch_rows,
                                   const SolveSegment& solve);

struct PlanError {
  // |z(s1) - reference| / |reference| of each row; infinite where the row did not converge.
  std::vector<double> rows;
  double mean = 0;
  double max = 0;
  double agreement = 0;  // share of rows with the reference's label; 0 where there are no outputs
};
// Precondition: the same rows, all of the reference's converged. F32 and F64 may be compared.
PlanError ErrorAgainst(const Solution& reference, const Solution& solution);

// The label of each row: the place of its largest output. Precondition: at least one row.
std::vector<int64_t> LabelsOf(const HostTensor& outputs);
// Share of places that hold the same label. Precondition: equal sizes, not 0.
double ShareOfEqual(const std::vector<int64_t>& labels, const std::vector<int64_t>& others);

}  // namespace hyperserve
