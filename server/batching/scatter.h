// Cuts requests into pieces and joins the results of pieces. Pure. Internal to this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/engine.h"

namespace hyperserve {

// Rows [begin, begin + rows) of a segment. The data is a view into that of `segment`; noise is
// shifted by first_row. Precondition: the rows are there.
Segment RowsOf(const Segment& segment, int64_t begin, int64_t rows);

// The rows of all parts, in their order; the bucket is the largest one. Precondition: at least one
// part, all of one BatchSpec.
BatchResult Concatenate(std::vector<BatchResult> parts);

}  // namespace hyperserve
