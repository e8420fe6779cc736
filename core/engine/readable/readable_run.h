// The readable engine: BatchSolver over TensorSpace, one LibTorch operation after another. It is
// the oracle of the tests, and runs every spec that no faster engine supports.
#pragma once

#include <c10/core/Stream.h>

#include <memory>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"

namespace hyperserve {

// A stream of the device for one run alone; on the CPU the default stream, which all runs share.
using StreamLease = std::shared_ptr<const c10::Stream>;

// `stream` takes all work of the run and decides its device. `rows` is the number of rows that will
// be admitted first. Throws as LibTorch does. Precondition: CheckSpec and ReadableSupports accept
// the spec. Called by DeviceRuntime only.
std::unique_ptr<Run> MakeReadableRun(const BatchSpec& spec, StreamLease stream, int64_t rows);

}  // namespace hyperserve
