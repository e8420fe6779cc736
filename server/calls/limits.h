// What one call may ask. Values, units and reasons stand on the options page; LimitsOf
// (server/options.h) fills them in. Until then nothing is allowed.
#pragma once

#include <chrono>
#include <cstdint>

namespace hyperserve {

struct CallLimits {
  int64_t request_rows_max = 0;
  int64_t request_bytes_max = 0;  // of inputs and outputs, of one request or chunk
  double request_macs_max = 0;    // predicted, likewise
  double batch_macs_max = 0;      // of one evaluation of f on a batch
  int64_t steps_max = 0;          // K of a fixed plan, and steps of an adaptive row
  int64_t save_at_max = 0;
  int64_t reply_bytes_default = 0;
  int64_t reply_bytes_max = 0;
  int64_t stream_rows_max = 0;
  int64_t chunk_rows_default = 0;
  std::chrono::milliseconds deadline_default{0};  // of requests that bring none
  std::chrono::milliseconds deadline_max{0};
  std::chrono::milliseconds retry_pushback{0};
};

}  // namespace hyperserve
