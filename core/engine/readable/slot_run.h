// The readable engine on a device whose every wait costs: rows stand in the slots of a bucket, and
// their depths, step sizes, statuses and masks stay on the device. A fixed plan waits for the
// device at the start of rows and for their results; error control reads the statuses once a step.
//
// It takes the steps of core/ode/step.h over SlotSpace; error control is slot_control.h. Rows that
// have ended are masked. A run of one segment under error control moves to a smaller bucket when
// half of its rows have ended; runs that segments share keep their bucket.
#pragma once

#include <cstdint>
#include <memory>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/engine/readable/slot_steps.h"
#include "core/engine/torch_scope.h"

namespace hyperserve {

// No states between the ends, no log-density, no derivative, no solver table, no control signal, no
// guidance and no field that is code: ReadableRun does these.
bool SlotRunSupports(const BatchSpec& spec);

// As MakeReadableRun. Works on any device, but the bits of a row on a CPU are not those of
// ReadableRun. `graph`: a step that StepGraphs captured for the spec and the bucket of `rows`; the
// bits of a row are the same with it. Precondition: SlotRunSupports(spec).
std::unique_ptr<Run> MakeSlotRun(const BatchSpec& spec, StreamLease stream, int64_t rows,
                                 std::shared_ptr<const StepGraph> graph = nullptr);

}  // namespace hyperserve
