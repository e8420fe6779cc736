// The input and the output of the batcher: plain data.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "server/clock/patience.h"

namespace hyperserve {

// Who sends a request, for fairness. Peers divide every limit and the solvers' time among them, the
// names of one peer divide its share. Both are bounded texts; empty is a client like any other.
struct ClientKey {
  std::string peer;  // the address without the port
  std::string name;  // what the caller calls itself
  auto operator<=>(const ClientKey&) const = default;
};

// The work of one request. Rows of equal `spec` may share evaluations of f; all other fields are
// the request's own.
struct Work {
  BatchSpec spec;  // owns the model and the correction
  Segment segment;
  std::shared_ptr<const void> keep_alive;  // owns the data that `segment` points to
  Patience patience;  // checked at admission, at dequeue and between evaluations
  int64_t bytes = 0;  // of inputs and outputs; counts against the limit until the answer
  int64_t macs = 0;   // predicted for all rows; counts against the limit until the answer
  // Predictions by which solvers find short work. Wrong ones cost time, never an answer.
  double evaluations = 1;      // of f, until a row of this request has finished
  double evaluation_macs = 1;  // of one evaluation on one row, with correction and tangents
  int64_t batch_rows_max = int64_t{1} << 62;  // rows of a run; the options may allow fewer
  ClientKey client;
  // Labels of metrics, from bounded sets.
  std::string model_label, plan_label;
};

// The rows that one plan of an automatic plan per row solved, and those that ended with it.
struct PlanRows {
  std::string plan;
  int64_t rows = 0, rows_ended = 0;
  bool operator==(const PlanRows&) const = default;
};

// The solved rows of one request. Where it was cut into pieces, engine and device are those of the
// piece that finished last.
struct WorkResult {
  BatchResult rows;
  std::string engine;         // "readable"
  std::string engine_reason;  // why ChooseEngine chose it
  std::string device;         // "cpu", "cuda:0"
  // Set by those who ask the batcher (server/rpc/solve_call.h). error_bound: of each row, NaN where
  // there is none or the row failed; empty: no row has one. plan_rows: of an automatic plan per
  // row.
  std::vector<double> error_bound = {};
  std::vector<PlanRows> plan_rows = {};
};

// The times of a request, also of one that failed.
struct WorkTimes {
  std::optional<double> queue_seconds;  // from admission to its first run, or to an earlier answer;
                                        // nullopt: not admitted
  std::optional<double> solve_seconds;  // from its first run to the answer; nullopt: no run took it
  std::chrono::milliseconds retry_after{0};  // shed: about when there may be room; else 0
};

// Called exactly once for each Submit, with no lock held. It must not wait.
using WorkDone = std::function<void(absl::StatusOr<WorkResult>, const WorkTimes&)>;

// Figures for metrics, for admission and for the choice of a device. Plain sums of one moment.
struct QueueDepth {
  int64_t requests = 0, rows = 0, queues = 0;  // waiting; queues also with rows in a run only
  int64_t bytes = 0, macs = 0;                 // of requests that are not answered yet
};

}  // namespace hyperserve
