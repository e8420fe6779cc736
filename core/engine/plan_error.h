// Error and cost of a plan against a reference solution. The daemon's gate and the trainer both
// measure with these functions. They are pure but for the solver that the caller passes in; they
// use no engine, no clock and no limits.
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

// Solves one segment from start to end. The caller decides on which engine, and under which
// deadline and cancellation. SolveRows passes its failures on.
using SolveSegment = std::function<absl::StatusOr<BatchResult>(
    const BatchSpec& spec, const StepPlan& plan, const Segment& segment)>;

// Results and mean costs of all rows in their order, also of rows that did not converge.
struct Solution {
  std::vector<RowStatus> status;
  HostTensor state;                                      // [rows, state...], if the spec wants it
  HostTensor saved;                                      // [rows, save_at, state...], likewise
  HostTensor outputs;                                    // [rows, outputs], likewise
  HostTensor log_density;                                // F64 [rows], if the spec asks for it
  std::vector<double> distance;                          // [rows], if the spec asks for it
  double nfe = 0, correction_evaluations = 0, macs = 0;  // means over the rows
};

// Solves the rows of a segment under the plan, at most `batch_rows` at a time. Precondition: at
// least one row and batch_rows >= 1.
absl::StatusOr<Solution> SolveRows(const BatchSpec& spec, const StepPlan& plan,
                                   const Segment& segment, int64_t batch_rows,
                                   const SolveSegment& solve);

// The errors of a plan on some rows, and what they come to. One row that did not converge makes
// mean and maximum infinite; p99 stays finite while at most 1 % of the rows are such.
struct PlanError {
  // |z(s1) - reference| / |reference| of each row, in the Euclidean norm, of all saved states
  // together where there are some; infinite where the row did not converge.
  std::vector<double> rows;
  double mean = 0;
  double p99 = 0;  // 99 % of the rows have at most this error
  double max = 0;
  double agreement = 0;  // share of rows with the reference's label; 0 without outputs
};
// Precondition: both hold states of the same rows and depths, at least one, and all rows of the
// reference converged. F32 may be compared with F64.
PlanError ErrorAgainst(const Solution& reference, const Solution& solution);

// The label of each row: the index of its largest output. Precondition: at least one row. The first
// of equal outputs counts.
std::vector<int64_t> LabelsOf(const HostTensor& outputs);
// The share of indices at which both hold the same label. Precondition: equal sizes, not 0.
double ShareOfEqual(const std::vector<int64_t>& labels, const std::vector<int64_t>& others);

}  // namespace hyperserve
