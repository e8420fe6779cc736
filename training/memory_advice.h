// What to say where the memory of a GPU is full.
#pragma once

#include "absl/status/status.h"

namespace hyperserve {

// Where the status says that the memory of the device is full (kResourceExhausted), the way out is
// put behind its message. `memory_max`: bytes that --device_memory_max allows; 0: no bound.
absl::Status WithMemoryAdvice(const absl::Status& status, double memory_max);

}  // namespace hyperserve
