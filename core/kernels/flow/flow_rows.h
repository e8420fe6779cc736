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
  // [count]; 1 where an input of a net was beyond what fp16 is known to carry, or not a number: the
  // row must be solved in another tier. Null: nobody asks.
  uint8_t* unfit = nullptr;
};

}  // namespace hyperserve::kernels
