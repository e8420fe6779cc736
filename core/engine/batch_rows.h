// The rows of a batch as one tensor: bytes of requests to numbers, preprocessing, noise.
#pragma once

#include <ATen/ATen.h>

#include "absl/status/status.h"
#include "core/engine/engine.h"

namespace hyperserve {

// kInvalidArgument names the segment, and what was wanted and found: shape, dtype, bytes; no rows
// at all; noise for a model that is no flow.
absl::Status CheckRows(const Batch& batch);

// All rows in order, [rows, ...]: the model's input after preprocessing for kInput, else states.
// U8 is divided by 255, and mean and deviation are applied, in double before the cast to `dtype`.
// Precondition: CheckRows(batch).ok().
at::Tensor ReadRows(const Batch& batch, at::ScalarType dtype, at::Device device);

int64_t CountRows(const Batch& batch);

}  // namespace hyperserve
