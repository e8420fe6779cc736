// The cost of one step, derived from specs. Unit: multiply-accumulates (MACs) of one row. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/net/model.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {

// Evaluations of f in one step of fixed size. Stages that only an error estimate needs do not
// count. Both functions of a step want a one-step method.
int StepEvaluations(const MethodChoice& method);

// Evaluations of f of a whole fixed plan, and its MACs: of f, of g, and of the maps of a learned
// table; stem and head are not counted. `correction` is null for classical plans; it has the table
// of a learned plan. Breaks at knots, which cut steps, are not known here.
int PlanEvaluations(const FixedPlan& plan);
int64_t PlanMacs(const Model& model, const Hypersolver* correction, const FixedPlan& plan);

// The classical fixed plans that a plan of these MACs competes with: of ab2 and each one-step
// method with neither parameter nor embedded pair, the largest K whose MACs are no greater;
// euler:1, which costs more, where none fits. Precondition: macs >= 0.
std::vector<FixedPlan> ClassicalRivals(const Model& model, int64_t macs);

// MACs of one step: f at each stage, and g once where `correction` is not null.
int64_t StepMacs(const Model& model, const Hypersolver* correction, const MethodChoice& method);

}  // namespace hyperserve
