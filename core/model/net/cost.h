// What a solve costs, derived from specs. Unit: multiply-accumulates (MACs) of one row.
#pragma once

#include <cstdint>

#include "core/model/net/model.h"
#include "core/plan/method.h"

namespace hyperserve {

// Evaluations of f that one step of fixed size makes.
int StepEvaluations(const MethodChoice& method);

// Of one step: every stage of f that z_next needs, and g once where a correction is given.
int64_t StepMacs(const Model& model, const Hypersolver* correction, const MethodChoice& method);

}  // namespace hyperserve
