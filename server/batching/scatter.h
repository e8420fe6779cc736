// Joins the results of pieces. Pure. Internal to this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/engine.h"

namespace hyperserve {

// The rows of all parts, in their order; the bucket is the largest one. Precondition: at least one
// part, all of one BatchSpec. Moves the first part and copies the others; allocates each list once.
BatchResult Concatenate(std::vector<BatchResult> parts);

}  // namespace hyperserve
