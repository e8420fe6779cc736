// The rows of a fused solve, as its caller gives them. Plain data.
#pragma once

#include <cstdint>

namespace hyperserve::kernels {

// All pointers are device memory, row-major.
struct FlowRows {
  int64_t count = 0;
  const float* z0 = nullptr;  // [count, dimensions]; null: noise of (seed, first_row + row)
  uint64_t seed = 0, first_row = 0;
  float* z1 = nullptr;  // [count, dimensions]
  // [count]; the log-density at the data's end: log N(noise) minus or plus the logarithm of the
  // stretch. Read only where the plan has a density; then not null.
  float* log_density = nullptr;
  int32_t* evaluations = nullptr;  // [count]; of f. Written by adaptive solves only; then not null
  // [count]; a RowFit. Null: nobody asks.
  uint8_t* unfit = nullptr;
};

enum RowFit : uint8_t {
  kRowFits,
  // An input of a net was beyond what fp16 is known to carry or not a number, or error control led
  // nowhere: the row must be solved by another engine.
  kRowUnfit,
  // An adaptive launch ended before the row did: it may end in a launch of fewer rows.
  kRowUnfinished,
};

}  // namespace hyperserve::kernels
