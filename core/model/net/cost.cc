#include "core/model/net/cost.h"

#include <algorithm>

#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/model/spec/spec_limits.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {

int StepEvaluations(const MethodChoice& method) { return TableauFor(method).solution_stages(); }

int PlanEvaluations(const FixedPlan& plan) {
  switch (plan.method.method) {
    case Method::kAb2:
      return plan.steps + 1;
    case Method::kLearned:
      return plan.steps;
    default:
      return plan.steps * StepEvaluations(plan.method);
  }
}

int64_t PlanMacs(const Model& model, const Hypersolver* correction, const FixedPlan& plan) {
  const int64_t field = PlanEvaluations(plan) * model.field_macs();
  if (correction == nullptr) return field;
  return field + (plan.method.method == Method::kLearned ? correction->table(plan.steps)->macs
                                                         : plan.steps * correction->macs());
}

std::vector<FixedPlan> ClassicalRivals(const Model& model, int64_t macs) {
  std::vector<FixedPlan> rivals;
  const int64_t evaluations = macs / std::max<int64_t>(model.field_macs(), 1);
  const auto add = [&rivals](Method method, int64_t steps) {
    if (steps < 1) return;
    rivals.push_back({.method = {.method = method}, .steps = static_cast<int>(steps)});
  };
  for (const MethodName& name : kMethodNames) {
    if (name.embedded || name.method == Method::kAlpha) continue;
    const int stages = StepEvaluations({.method = name.method});
    add(name.method, std::min(evaluations / stages, spec_limits::kSteps));
  }
  if (model.spec().kind != ModelKind::kTrajectory) {  // ab2 gives no states on the way
    add(Method::kAb2, std::min<int64_t>(evaluations, kTableEvaluationsMax) - 1);
  }
  if (rivals.empty()) rivals.push_back({.method = {.method = Method::kEuler}, .steps = 1});
  return rivals;
}

int64_t StepMacs(const Model& model, const Hypersolver* correction, const MethodChoice& method) {
  return StepEvaluations(method) * model.field_macs() +
         (correction == nullptr ? 0 : correction->macs());
}

}  // namespace hyperserve
