// The readable engine: one LibTorch operation after another. It is the oracle of the tests, and
// runs every spec that no faster engine supports. On CUDA it runs in slots where it can
// (slot_run.h), elsewhere by BatchSolver or TableSolver over TensorSpace.
#pragma once

#include <cstdint>
#include <memory>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/engine/torch_scope.h"

namespace hyperserve {

// `stream` takes all work of the run and decides its device. `rows` is the number of rows that will
// be admitted first. Throws as LibTorch does. Precondition: CheckSpec and ReadableSupports accept
// the spec, which is not of kVjp (core/engine/gradient). Called by DeviceRuntime, and by the fused
// engine for rows that fp16 cannot carry.
std::unique_ptr<Run> MakeReadableRun(const BatchSpec& spec, StreamLease stream, int64_t rows);

}  // namespace hyperserve
