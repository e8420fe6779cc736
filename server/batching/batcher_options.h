// The options of the batcher. Defaults, bounds and reasons are on the options page
// (server/options.h); every number here is set by the caller.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hyperserve {

// Reported for metrics when a piece of a request leaves its run: the company that it had.
struct BatchReport {
  std::string model_label, plan_label;
  // Averages over the evaluations of the piece; the piece itself is counted.
  double requests = 0;  // pieces that shared the evaluation
  double rows = 0;      // rows that shared it, without padding
  int64_t turns = 0;    // of the run while the piece was in it; above 1: the run gave way
};

// Copied by the batcher. No number has a default: BatcherOptionsOf (server/options.h) or a test
// sets each.
struct BatcherOptions {
  int64_t batch_rows_max;                     // rows of one run
  std::chrono::microseconds queue_delay_max;  // how long rows wait for company while all are busy
  int64_t queue_rows_max;                     // rows waiting in all queues
  int64_t queue_bytes_max;                    // bytes of what is not answered yet
  int64_t pending_macs_max;                   // predicted MACs of what is not answered yet
  int64_t live_queues_max;                    // distinct specs waiting or running
  int64_t live_runs_max;  // runs in memory, those that gave way among them; at least two a solver
  int solvers;            // threads
  std::chrono::microseconds turn_max;   // a run solves this long, then others may have a turn
  std::chrono::microseconds watch_max;  // an idle solver looks out for work, then it sleeps
  // The fixed cost of an evaluation of f (dispatch, launches), in MACs. Rows join longer and
  // shorter rows if their own MACs are small beside it (batch_policy.h).
  double evaluation_macs_fixed;
  // All are called on a solver thread, without the batcher's lock, and may be empty.
  std::function<void(const BatchReport&)> on_batch = nullptr;
  // The memory of this device was too full for a run of so many rows; they are tried in halves.
  std::function<void(std::string_view device, int64_t rows)> on_device_full = nullptr;
  // The device is lost for this process, in words. Called once for each; all that waits for it was
  // answered so.
  std::function<void(std::string_view device, const absl::Status&)> on_device_lost = nullptr;
};

}  // namespace hyperserve
