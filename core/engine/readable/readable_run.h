// The readable engine: BatchSolver over TensorSpace, one LibTorch operation after the other. The
// oracle of the tests, and the engine of every spec that no faster one takes.
#pragma once

#include <c10/core/Stream.h>

#include <memory>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"

namespace hyperserve {

// A stream of the device that its holder has to itself; on the CPU the default one, of all.
using StreamLease = std::shared_ptr<const c10::Stream>;

// `stream`: all work of the run goes there. `rows`: how many will be admitted at once.
// Precondition: CheckSpec and ReadableSupports hold for the spec. Throws what LibTorch throws.
std::unique_ptr<Run> MakeReadableRun(const BatchSpec& spec, StreamLease stream, int64_t rows);

}  // namespace hyperserve
