// A job is what a call asks for after its checks, and before it has the batcher's form. Its size is
// predicted here; admission bounds it. Pure; any thread may call.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "server/calls/limits.h"
#include "server/calls/resolve.h"
#include "server/calls/task.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// Owns the rows that it copied from the message, so the message may go.
struct Job {
  std::shared_ptr<const ServedModel> served;  // pinned
  ResolvedPlan plan;
  Task task;
  int64_t rows = 0;           // at least 1
  HostTensor data;            // [rows, ...]; empty for Entry::kNoise
  HostTensor condition = {};  // [rows, features], or one row for all; empty: the model has none
  HostTensor guidance = {};   // F64 [rows, task.guidance], or one row for all; empty: none
  HostTensor vector = {}, condition_vector = {};  // of a derivative, as Segment's
  uint64_t seed = 0;                              // for Entry::kNoise
  uint64_t first_row = 0;                         // for Entry::kNoise and for probes
  uint64_t probe_seed = 0;                        // where the log-density is estimated
  int64_t row_bytes = 0;                          // of one row in the answer
  int64_t kept_row_bytes = 0;                     // beside it, of a row that is under way
};

// The predicted cost of one row, in multiply-accumulates (MACs). The evaluations of a fixed plan
// follow from its method and K. Those of an adaptive plan are what the model's calibration measured
// for it; else for the most costly adaptive plan that the calibration has; else 100. They grow with
// the span and are bounded by max_steps. Each depth of save_at adds its interpolation, and each
// step that holds one an evaluation. A wrong prediction costs time, never an answer.
struct RowCost {
  double evaluations = 0;      // of f
  double evaluation_macs = 0;  // of one evaluation, with tangents and its share of the corrections;
                               // of the halves of a guided one
  double maps_macs = 0;        // of the input map, the output map and interpolations
  double macs() const { return maps_macs + evaluations * evaluation_macs; }
};
// Of the job's plan; the later plans of an automatic one are predicted in their turn.
RowCost PredictRow(const Job& job);

// What admission counts.
struct JobSize {
  int64_t bytes = 0;           // of inputs and outputs of all rows, and of what is kept at once
  int64_t macs = 0;            // predicted for all rows
  RowCost row;                 // of one row; in tier double as float32 MACs of the same time
  int64_t batch_rows_max = 0;  // rows whose evaluation of f stays within batch_macs_max
};
// kInvalidArgument: the job is over request_bytes_max or request_macs_max, so it could never be
// admitted.
absl::StatusOr<JobSize> SizeOf(const Job& job, const CallLimits& limits);

}  // namespace hyperserve
