// The images of a fused convolutional solve, as its caller gives them. Plain data.
#pragma once

#include <cstdint>

#include "core/kernels/flow/flow_rows.h"

namespace hyperserve::kernels {

// All pointers are device memory, row-major.
struct ConvRows {
  int64_t count = 0;
  const float* z0 = nullptr;       // [count, channels, height, width]
  float* z1 = nullptr;             // the same; must not be z0
  uint8_t* unfit = nullptr;        // [count]; a RowFit. kRowUnfinished: of adaptive solves only
  int32_t* evaluations = nullptr;  // [count]; of f. Written by adaptive solves only; then not null
  void* scratch = nullptr;         // ConvScratchBytes of it, 16-byte aligned
};

}  // namespace hyperserve::kernels
