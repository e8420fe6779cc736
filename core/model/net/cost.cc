#include "core/model/net/cost.h"

#include "core/ode/tableau.h"

namespace hyperserve {

int StepEvaluations(const MethodChoice& method) { return TableauFor(method).solution_stages(); }

int64_t StepMacs(const Model& model, const Hypersolver* correction, const MethodChoice& method) {
  return StepEvaluations(method) * model.field_macs() +
         (correction == nullptr ? 0 : correction->macs());
}

}  // namespace hyperserve
