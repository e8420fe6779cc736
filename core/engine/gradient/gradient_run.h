// Runs of vector-Jacobian products and gradients of log-densities (Derivative::kVjp), on any
// device.
//
// The rows that wait when nothing is under way go through the plan together, those of one number of
// steps at a time; room() is 0 until all have come back. Advance counts steps, to the end and back,
// instead of evaluations of f. Dropped rows have no result, but go on beside others. On CUDA
// LibTorch walks back on a thread of its own.
#pragma once

#include <memory>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/engine/torch_scope.h"

namespace hyperserve {

// As MakeReadableRun. Precondition: the spec is of kVjp.
std::unique_ptr<Run> MakeGradientRun(const BatchSpec& spec, StreamLease stream, int64_t rows);

}  // namespace hyperserve
