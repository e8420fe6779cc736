// The images of a fused convolutional solve, as its caller gives them. Plain data.
#pragma once

#include <cstdint>

namespace hyperserve::kernels {

// All pointers are device memory, row-major.
struct ConvRows {
  int64_t count = 0;
  const float* z0 = nullptr;  // [count, channels, height, width]
  float* z1 = nullptr;        // the same; must not be z0
  // [count]; 1 where a number was beyond fp16 or not a number: the row must be solved in another
  // tier.
  uint8_t* unfit = nullptr;
  void* scratch = nullptr;  // ConvScratchBytes of it, 16-byte aligned
};

}  // namespace hyperserve::kernels
