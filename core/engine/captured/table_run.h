// The engine `graph` on tables: segments wait, and the next Advance solves those of each number of
// steps together, by one captured solve. Rows of one bucket; a row has the bits that the readable
// engine gives it in that bucket.
#pragma once

#include <cstdint>
#include <memory>

#include "core/engine/batch_spec.h"
#include "core/engine/captured/table_graphs.h"
#include "core/engine/engine.h"

namespace hyperserve {

// `lease`: what TableGraphs::Take gave for the spec. Rows that ask for a table that was not
// captured are solved by the same operations, one after the other. Precondition:
// TableSolveSupports(spec).
std::unique_ptr<Run> MakeTableRun(const BatchSpec& spec, TableGraphs::Lease lease);

}  // namespace hyperserve
