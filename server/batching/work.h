// What the batcher is given and what it gives back: plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "server/clock/patience.h"

namespace hyperserve {

// One request's work. Rows of equal `spec` may share evaluations of f; everything else is the
// request's own.
struct Work {
  BatchSpec spec;
  Segment segment;
  std::shared_ptr<const void> keep_alive;  // owns what segment.data points to, and the pinned model
  Patience patience;  // honoured at admission, at dequeue and between evaluations
  int64_t bytes = 0;  // of inputs and outputs, counted until the request is answered
  int64_t macs = 0;   // predicted for all rows, counted likewise
  // Predictions by which solvers choose what is short; wrong ones cost time, never an answer.
  double evaluations = 1;      // of f, until a row of this request has finished
  double evaluation_macs = 1;  // of one evaluation on one row, correction and tangents included
  int64_t batch_rows_max = int64_t{1} << 62;  // of a run of this spec, where the options allow more
  // What metrics call this work (bounded sets).
  std::string model_label, plan_label;
};

// The rows of one request, and who solved them (the last of its pieces).
struct WorkResult {
  BatchResult rows;
  std::string engine;
  std::string engine_reason;
  std::string device;
};

// Where a request's time went, whatever its answer.
struct WorkTimes {
  std::optional<double> queue_seconds;  // from admission to its first run, or to an earlier answer;
                                        // none: not admitted
  std::optional<double> solve_seconds;  // from then to the answer; none: no run took it
};

using WorkDone = std::function<void(absl::StatusOr<WorkResult>, const WorkTimes&)>;

struct QueueDepth {
  int64_t requests = 0, rows = 0, queues = 0;  // waiting; queues also where rows are under way
  int64_t bytes = 0, macs = 0;                 // of requests that are not answered yet
};

}  // namespace hyperserve
