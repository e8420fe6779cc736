// Cutting requests into pieces and results into requests: pure functions on rows.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/engine.h"

namespace hyperserve {

// Rows [begin, begin + rows) of a segment: the view into its data, or the same noise by first_row.
Segment RowsOf(const Segment& segment, int64_t begin, int64_t rows);

// The rows of all parts, in order. Precondition: at least one part, all of one BatchSpec. The
// bucket is the largest.
BatchResult Concatenate(std::vector<BatchResult> parts);

}  // namespace hyperserve
