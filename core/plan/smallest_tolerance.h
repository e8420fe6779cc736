// What the arithmetic of a tier can meet. Pure; any thread.
#pragma once

#include "core/plan/plan.h"

namespace hyperserve {

// The smallest tolerance of an adaptive plan that makes sense: about one unit in the last place of
// float32, and some hundred of double, whose field is rounded as well. Below it more steps only add
// rounding errors.
inline double SmallestTolerance(Tier tier) { return tier == Tier::kDouble ? 1e-13 : 1e-7; }

}  // namespace hyperserve
