#include "server/calls/resolve.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/smallest_tolerance.h"
#include "server/calls/served_plan.h"

namespace hyperserve {
namespace {

absl::Status CheckStatesOnTheWay(const Plan& plan, const Task& task) {
  if (!task.save_at.empty() && plan.fixed() != nullptr &&
      RunsFromTable(plan.fixed()->method.method)) {
    return absl::FailedPreconditionError(
        absl::StrCat("plan '", PrintPlan(plan),
                     "' gives no states on its way, which save_at and the answers of trajectories "
                     "are; ask for another plan, as in 'dopri5:1e-5'"));
  }
  return absl::OkStatus();
}

// A schedule has a weight for each step.
absl::Status CheckGuidance(const Plan& plan, const Task& task) {
  if (task.guidance == 0) return absl::OkStatus();
  if (plan.hypersolved()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "plan '", PrintPlan(plan),
        "' takes no guidance: what was learned corrects the field of weight 1; ask for a classical "
        "plan, as in 'heun:8'"));
  }
  if (task.guidance == 1) return absl::OkStatus();
  const FixedPlan* fixed = plan.fixed();
  if (fixed == nullptr || RunsFromTable(fixed->method.method) || fixed->steps != task.guidance) {
    return absl::InvalidArgumentError(
        absl::StrCat("guidance: ", task.guidance, " weights a row for plan '", PrintPlan(plan),
                     "'; send one, or one for each step of a plan of fixed steps"));
  }
  if (task.save_at.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "guidance: a weight for each step gives no states on the way; ask without save_at, or with "
      "one weight");
}

absl::Status CheckKnots(const Plan& plan, const Task& task) {
  if (task.knots.empty()) return absl::OkStatus();
  if (plan.hypersolved() ||
      (plan.fixed() != nullptr && RunsFromTable(plan.fixed()->method.method))) {
    return absl::FailedPreconditionError(absl::StrCat(
        "plan '", PrintPlan(plan),
        "' takes no condition_knots: its steps cannot end at them; ask for a classical one-step "
        "plan, as in 'heun:8' or 'dopri5:1e-5'"));
  }
  if (task.guidance <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "guidance: a weight for each step and condition_knots, which cut steps, do not go together; "
      "send one weight");
}

// The log-density of a learned step takes the determinant of its Jacobian.
absl::Status CheckProbes(const Plan& plan, const Task& task, const Model& model) {
  if (task.probes == 0 || !plan.hypersolved()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "plan '", PrintPlan(plan),
      "' has the log-density of its own steps, which is exact and ends at ", kTangentsMax,
      " dimensions; the model has ", model.state_elements(),
      ". Ask for a classical plan, as in 'dopri5:1e-5', whose log-density is estimated"));
}

absl::Status CheckDerivative(const Plan& plan, const Task& task) {
  if (task.derivative == Derivative::kNone) return absl::OkStatus();
  const FixedPlan* const fixed = plan.fixed();
  const auto refuse = [&](const std::string& why, const Plan& instead) {
    return absl::FailedPreconditionError(absl::StrCat("plan '", PrintPlan(plan), "' ", why,
                                                      "; ask for a fixed plan, as in '",
                                                      PrintPlan(instead), "'"));
  };
  const FixedPlan rk4{.method = {.method = Method::kRk4}, .steps = 8};
  if (fixed == nullptr) {
    return refuse("chooses its steps by the state, so it has no derivative",
                  {.choice = rk4, .tier = plan.tier});
  }
  if (plan.tier == Tier::kFast) {
    Plan exact = plan;
    exact.tier = Tier::kExact;
    return refuse("is of tier fast, which has no derivatives", exact);
  }
  return absl::OkStatus();
}

constexpr char kPerRowLabel[] = "auto:per_row";  // one for all targets

absl::Status CheckTolerances(const Plan& plan) {
  const AdaptivePlan* const adaptive = plan.adaptive();
  const double smallest = SmallestTolerance(plan.tier);
  // Either one alone bounds what is asked of states around 1.
  if (adaptive == nullptr || std::max(adaptive->rtol, adaptive->atol) >= smallest) {
    return absl::OkStatus();
  }
  AdaptivePlan sensible = *adaptive, exact = *adaptive;
  sensible.rtol = sensible.atol = smallest;
  exact.rtol = exact.atol =
      std::max(std::max(adaptive->rtol, adaptive->atol), SmallestTolerance(Tier::kDouble));
  const std::string way_out =
      plan.tier == Tier::kDouble
          ? ""
          : absl::StrCat(", or '", PrintPlan({.choice = exact, .tier = Tier::kDouble}), "'");
  return absl::InvalidArgumentError(absl::StrCat(
      "plan '", PrintPlan(plan), "': tier ", Absl(TierName(plan.tier)),
      " cannot meet this tolerance, and more steps would only add rounding errors; the smallest "
      "sensible one is '",
      PrintPlan({.choice = sensible, .tier = plan.tier}), "'", way_out));
}

absl::Status CheckLimits(const Plan& plan, const AskTerms& terms, const CallLimits& limits) {
  if (plan.fixed() != nullptr && plan.fixed()->steps > limits.steps_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "plan: ", plan.fixed()->steps, " steps, more than steps_max = ", limits.steps_max));
  }
  if (terms.max_steps < 0 || terms.max_steps > limits.steps_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_steps: ", terms.max_steps, " is not within [0, steps_max = ", limits.steps_max,
        "]; 0 asks for the limit itself"));
  }
  if (terms.generation < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("generation: ", terms.generation, " is negative; 0 asks for the active"));
  }
  if (terms.generation != 0 && !plan.hypersolved()) {
    return absl::InvalidArgumentError(absl::StrCat("generation: ", terms.generation,
                                                   " is pinned, but plan '", PrintPlan(plan),
                                                   "' is classical and uses no correction"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Generation>> PinGeneration(const MethodChoice& method,
                                                                int64_t number,
                                                                const ServedModel& model) {
  const CorrectionState* state = model.Find(method);
  if (state == nullptr) {
    std::vector<std::string> there;
    for (const CorrectionState& one : model.corrections) there.push_back(PrintMethod(one.method));
    return absl::NotFoundError(absl::StrCat(
        "model '", model.name, "' has no hypersolver for '", PrintMethod(method), "'; it has ",
        there.empty() ? "none" : "those for " + absl::StrJoin(there, ", ")));
  }
  if (state->active == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no hypersolver for '", PrintMethod(method), "' of model '", model.name,
        "' is served: ", state->problem.empty() ? "none has passed its check" : state->problem));
  }
  if (number == 0 || number == state->active->number) return state->active;
  if (state->previous != nullptr && number == state->previous->number) return state->previous;
  return absl::NotFoundError(absl::StrCat(
      "generation ", number, " of '", PrintMethod(method), "' of model '", model.name,
      "' is not served; the active one is ", state->active->number,
      state->previous ? absl::StrCat(", the previous one ", state->previous->number) : ""));
}

// What was measured of the plan; null: nothing.
const PlanCalibration* MeasuredOf(const ResolvedPlan& resolved, const ServedModel& model) {
  if (resolved.generation != nullptr) {
    const PlanCalibration* own = resolved.generation->calibration.Find(resolved.plan);
    if (own != nullptr) return own;
  }
  return model.calibration.Find(resolved.plan);
}

// Plans that are the default, calibrated or claimed have a label of their own; all others share
// that of their method. So the set of labels is bounded.
std::string PlanLabel(const ResolvedPlan& resolved, const ServedModel& model) {
  const Plan& plan = resolved.plan;
  if (resolved.is_default || MeasuredOf(resolved, model) != nullptr) return resolved.text;
  const FixedPlan* fixed = plan.fixed();
  if (resolved.generation != nullptr) {
    const std::vector<int>& claimed = resolved.generation->correction->spec().steps;
    if ((plan.tier == Tier::kExact && fixed->grid.uniform() &&
         std::find(claimed.begin(), claimed.end(), fixed->steps) != claimed.end())) {
      return resolved.text;
    }
  }
  const Method method = fixed != nullptr ? fixed->method.method : plan.adaptive()->method.method;
  const bool hyper = resolved.generation != nullptr && method != Method::kLearned;
  return absl::StrCat(hyper ? "hyper_" : "", Absl(NameOf(method).name), ":other");
}

// The bound that rows of the plan have in this task; nullopt: none.
std::optional<double> BoundFactor(const ResolvedPlan& resolved, const ServedModel& model,
                                  const Task& task) {
  const PlanCalibration* measured = MeasuredOf(resolved, model);
  if (measured == nullptr || !measured->bound || !IsMeasuredTask(model, task)) return std::nullopt;
  const Generation* generation = resolved.generation.get();
  if (generation == nullptr) return std::nullopt;
  const Hypersolver::TableFacts* table =
      generation->correction->table(resolved.plan.fixed()->steps);
  if (table == nullptr || !table->spec->distance) return std::nullopt;
  return measured->bound->factor;
}

absl::Status NoBound(const ResolvedPlan& resolved, const ServedModel& model, const Task& task) {
  std::vector<std::string> with;
  const CorrectionState* learned = model.Find({.method = Method::kLearned});
  if (learned != nullptr && learned->active != nullptr && IsMeasuredTask(model, task)) {
    for (const PlanCalibration& one : learned->active->calibration.plans) {
      if (one.bound) with.push_back(PrintPlan(one.plan));
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "plan '", resolved.text, "' has no bound of each row's error for what is asked; ",
      with.empty() ? "no plan of this model has one" : absl::StrJoin(with, ", ") + " have one",
      "; ask without want_error_bound"));
}

// `plan` is fixed or adaptive.
absl::StatusOr<ResolvedPlan> ResolveOne(const Plan& plan, const AskTerms& terms,
                                        const ServedModel& model, const Task& task,
                                        const CallLimits& limits) {
  ResolvedPlan resolved;
  resolved.plan = plan;
  HS_RETURN_IF_ERROR(CheckStatesOnTheWay(resolved.plan, task));
  HS_RETURN_IF_ERROR(CheckGuidance(resolved.plan, task));
  HS_RETURN_IF_ERROR(CheckKnots(resolved.plan, task));
  HS_RETURN_IF_ERROR(CheckProbes(resolved.plan, task, *model.model));
  HS_RETURN_IF_ERROR(CheckDerivative(resolved.plan, task));
  HS_RETURN_IF_ERROR(CheckTolerances(resolved.plan));
  HS_RETURN_IF_ERROR(CheckLimits(resolved.plan, terms, limits));
  resolved.text = PrintPlan(resolved.plan);
  // A fixed plan does not use the limit and always gets the same value.
  resolved.max_steps = resolved.plan.adaptive() != nullptr && terms.max_steps > 0
                           ? terms.max_steps
                           : limits.steps_max;
  if (resolved.plan.hypersolved()) {
    const FixedPlan& fixed = *resolved.plan.fixed();
    HS_ASSIGN_OR_RETURN(resolved.generation, PinGeneration(fixed.method, terms.generation, model));
    // A step without length is outside no range; it changes nothing.
    if (task.span[0] < task.span[1] || fixed.method.method == Method::kLearned)
      HS_RETURN_IF_ERROR(
          CheckApplies(*resolved.generation->correction, fixed, task.direction, task.span));
  }
  resolved.is_default = plan == DefaultPlanOf(model.calibration);
  resolved.label = PlanLabel(resolved, model);
  const PlanCalibration* measured = MeasuredOf(resolved, model);
  if (measured != nullptr && task.guidance == 0 && task.knots.empty())
    resolved.error = measured->error_mean;
  return resolved;
}

}  // namespace

absl::StatusOr<ResolvedPlan> ResolvePlan(const AskTerms& terms, const ServedModel& model,
                                         const Task& task, const CallLimits& limits) {
  HS_RETURN_IF_ERROR(terms.plan.status());
  if (task.derivative != Derivative::kNone && task.want_bound) {
    return absl::InvalidArgumentError("want_error_bound: a derivative has no bound of its error");
  }
  HS_ASSIGN_OR_RETURN(ServedPlan served, PlanFor(*terms.plan, model, task));
  if (task.derivative != Derivative::kNone && served.per_row) {
    return absl::FailedPreconditionError(
        "an automatic plan per row has no derivative; ask for one plan, as in 'rk4:8'");
  }
  if (task.probes > 0 && served.per_row) {
    return absl::FailedPreconditionError(
        "an automatic plan per row has no log-density that is estimated; ask for one plan, as in "
        "'dopri5:1e-5'");
  }
  HS_ASSIGN_OR_RETURN(ResolvedPlan resolved, ResolveOne(served.plan, terms, model, task, limits));
  resolved.reason = std::move(served.reason);
  if (task.want_bound || served.per_row) resolved.bound_factor = BoundFactor(resolved, model, task);
  if (!served.per_row) {
    if (task.want_bound && !resolved.bound_factor) return NoBound(resolved, model, task);
    return resolved;
  }
  AskTerms later_terms = terms;
  for (const Plan& plan : served.later) {
    later_terms.generation = plan.hypersolved() ? terms.generation : 0;
    HS_ASSIGN_OR_RETURN(ResolvedPlan later, ResolveOne(plan, later_terms, model, task, limits));
    later.bound_factor = BoundFactor(later, model, task);
    resolved.later.push_back(std::move(later));
  }
  resolved.row_target = served.per_row->target_error;
  resolved.text = PrintPlan({.choice = *served.per_row, .tier = resolved.plan.tier});
  resolved.label = kPerRowLabel;
  resolved.is_default = false;
  resolved.error.reset();
  return resolved;
}

}  // namespace hyperserve
