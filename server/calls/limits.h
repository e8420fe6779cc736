// The limits of one call. LimitsOf (server/options.h) fills them in from the options page, which
// has their defaults and reasons. Before that they allow nothing.
#pragma once

#include <chrono>
#include <cstdint>

namespace hyperserve {

struct CallLimits {
  int64_t request_rows_max = 0;   // rows of one request or chunk
  int64_t receive_bytes_max = 0;  // of one request on the wire
  int64_t request_bytes_max = 0;  // inputs and outputs of one request or chunk
  double request_macs_max = 0;    // predicted MACs of one request or chunk
  double batch_macs_max = 0;      // MACs of one evaluation of f on a batch
  int64_t live_runs_max = 0;      // batches under way at once
  int64_t steps_max = 0;          // K of a fixed plan, and steps of an adaptive row
  int64_t save_at_max = 0;        // depths of one Solve
  int64_t reply_bytes_default = 0;
  int64_t reply_bytes_max = 0;                    // the largest max_reply_bytes
  int64_t stream_rows_max = 0;                    // rows of one SampleStream
  int64_t chunk_rows_default = 0;                 // rows of a chunk where the request names none
  std::chrono::milliseconds deadline_default{0};  // of unary calls that bring none
  std::chrono::milliseconds deadline_max{0};
  std::chrono::milliseconds request_arrival_max{0};  // from a call's headers to its whole request
  std::chrono::milliseconds retry_pushback{0};       // told to callers that were shed
};

}  // namespace hyperserve
