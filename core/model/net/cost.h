// The cost of one step, derived from specs. Unit: multiply-accumulates (MACs) of one row. Pure; any
// thread.
#pragma once

#include <cstdint>

#include "core/model/net/model.h"
#include "core/plan/method.h"

namespace hyperserve {

// Evaluations of f in one step of fixed size. Stages that only an error estimate needs do not
// count.
int StepEvaluations(const MethodChoice& method);

// MACs of one step: f at each stage, and g once where `correction` is not null.
int64_t StepMacs(const Model& model, const Hypersolver* correction, const MethodChoice& method);

}  // namespace hyperserve
