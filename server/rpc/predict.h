// How much work a request will be, before it is solved: what admission bounds.
#pragma once

#include <cstdint>

#include "core/model/repository/calibration.h"
#include "server/batching/batcher.h"
#include "server/rpc/limits.h"

namespace hyperserve {

// MACs of one row. Fixed plans: from specs and K alone. Adaptive ones: the evaluations that
// `calibration` measured for this plan, else for the most costly adaptive one that it holds, else
// 100; in proportion to the span, at most those of max_steps.
double PredictRowMacs(const BatchSpec& spec, const Calibration& calibration);

// Fills in what the batcher needs to know of the work's size; the rest must be there.
// kInvalidArgument where it is more than request_bytes_max or request_macs_max: it could never be
// admitted.
absl::Status BoundWork(const Calibration& calibration, const CallLimits& limits, Work& work);

}  // namespace hyperserve
