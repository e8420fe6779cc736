// What the batcher is told at start. Defaults, bounds and reasons stand on the options page
// (server/options.h); nothing here repeats them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace hyperserve {

// A piece of a request that has left its run, for metrics: the company it had.
struct BatchReport {
  std::string model_label, plan_label;
  // That shared the piece's evaluations, itself included, on the average of these evaluations.
  double requests = 0;  // pieces of requests
  double rows = 0;      // padding not counted
  int64_t turns = 0;    // of its run while the piece was in it; above 1: the run gave way to others
};

struct BatcherOptions {
  int64_t batch_rows_max;                     // rows of one run
  std::chrono::microseconds queue_delay_max;  // how long rows wait for company while all are busy
  int64_t queue_rows_max;                     // rows waiting in all queues
  int64_t queue_bytes_max;                    // bytes of what is not answered yet
  int64_t pending_macs_max;                   // predicted MACs of what is not answered yet
  int64_t live_queues_max;                    // distinct specs waiting or running
  int64_t live_runs_max;  // runs in memory, those that gave way among them; at least two a solver
  int solvers;            // threads
  std::chrono::microseconds turn_max;  // a run solves this long, then others may have a turn
  // What an evaluation of f costs beside its rows (dispatch, launches), as MACs. Rows join longer
  // and shorter ones where their own MACs are little beside this (batch_policy.h).
  double evaluation_macs_fixed;
  std::function<void(const BatchReport&)> on_batch;  // on a solver thread; may be empty
};

}  // namespace hyperserve
