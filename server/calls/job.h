// What a call wants done, before it has the batcher's form, and how much work that is: what
// admission bounds. Pure.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "server/calls/limits.h"
#include "server/calls/resolve.h"
#include "server/registry/served_model.h"

namespace hyperserve {

struct Job {
  std::shared_ptr<const ServedModel> served;  // pinned
  ResolvedPlan plan;
  Task task;
  int64_t rows = 0;
  HostTensor data;         // [rows, ...]; empty for Entry::kNoise
  uint64_t seed = 0;       // Entry::kNoise
  uint64_t first_row = 0;  // Entry::kNoise
  int64_t row_bytes = 0;   // of one row's answers
};

// What one row is predicted to cost. Fixed plans: from specs and K alone. Adaptive ones: the
// evaluations that the model's calibration measured for this plan, else for the most costly
// adaptive one that it holds, else 100; in proportion to the span, at most those of max_steps.
struct RowCost {
  double evaluations = 0;      // of f
  double evaluation_macs = 0;  // of one, with tangents and its share of the corrections
  double maps_macs = 0;        // of the input and the output map
  double macs() const { return maps_macs + evaluations * evaluation_macs; }
};
RowCost PredictRow(const Job& job);

struct JobSize {
  int64_t bytes = 0;  // of inputs and outputs
  int64_t macs = 0;   // predicted, of all rows
  RowCost row;
  int64_t batch_rows_max = 0;
};
// kInvalidArgument where it is more than request_bytes_max or request_macs_max: it could never be
// admitted.
absl::StatusOr<JobSize> SizeOf(const Job& job, const CallLimits& limits);

}  // namespace hyperserve
