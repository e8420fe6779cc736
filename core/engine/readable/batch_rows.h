// The rows of segments as one tensor: bytes of requests to numbers, preprocessing, noise.
#pragma once

#include <ATen/ATen.h>

#include <span>

#include "absl/status/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"

namespace hyperserve {

// kInvalidArgument says what was wanted and found: rows, control, shape, dtype, bytes.
absl::Status CheckSegment(const BatchSpec& spec, const Segment& segment);

// All rows in order, [rows, ...]: the model's input after preprocessing for kInput, else states.
// U8 is divided by 255, and mean and deviation are applied, in double before the cast to `dtype`.
// Preconditions: CheckSegment(spec, segment).ok() for each; at least one.
at::Tensor ReadRows(const BatchSpec& spec, std::span<const Segment> segments, at::ScalarType dtype,
                    at::Device device);

}  // namespace hyperserve
