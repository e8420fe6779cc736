// What one call may ask. Values, units and reasons stand on the options page (server/options.h).
#pragma once

#include <chrono>
#include <cstdint>

namespace hyperserve {

struct CallLimits {
  int64_t request_rows_max = 16384;
  int64_t request_bytes_max = 256 << 20;  // of inputs and outputs, of one request or chunk
  double request_macs_max = 1e18;         // predicted, likewise
  double batch_macs_max = 1e18;           // of one evaluation of f on a batch
  int64_t steps_max = 10000;              // K of a fixed plan, and steps of an adaptive row
  int64_t save_at_max = 1000;
  int64_t reply_bytes_default = (4 << 20) - (64 << 10);  // what ordinary gRPC clients receive
  int64_t reply_bytes_max = 64 << 20;
  int64_t stream_rows_max = int64_t{1} << 40;
  int64_t chunk_rows_default = 4096;
  std::chrono::milliseconds deadline_default{30'000};  // of requests that bring none
  std::chrono::milliseconds deadline_max{600'000};
  std::chrono::milliseconds retry_pushback{50};
};

}  // namespace hyperserve
