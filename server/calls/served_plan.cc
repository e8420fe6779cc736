#include "server/calls/served_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/choose_ladder.h"
#include "core/model/repository/choose_plan.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"

namespace hyperserve {
namespace {

// Calibration measures Sample of a flow, and what is solved forward of other kinds.
Direction MeasuredDirection(const ModelSpec& spec) {
  return spec.kind == ModelKind::kFlow ? Direction::kNoiseToData : Direction::kForward;
}

// Can the plan do the task at all, where it is served?
bool Fits(const Plan& plan, const Task& task, const ServedModel& model) {
  const FixedPlan* fixed = plan.fixed();
  if (fixed == nullptr) return true;
  if (RunsFromTable(fixed->method.method) && !(task.save_at.empty() && task.knots.empty())) {
    return false;
  }
  if (!plan.hypersolved()) return true;
  if (task.guidance > 0 || !task.knots.empty()) return false;
  const CorrectionState* state = model.Find(fixed->method);
  return state != nullptr && state->active != nullptr &&
         CheckApplies(*state->active->correction, *fixed, task.direction, task.span).ok();
}

std::vector<PlanOption> OptionsFor(const ServedModel& model, const Task& task, Tier tier) {
  std::vector<PlanOption> options;
  const auto add = [&](const Calibration& calibration, bool hypersolved) {
    for (const PlanCalibration& one : calibration.plans) {
      if (one.plan.tier != tier || one.plan.hypersolved() != hypersolved) continue;
      if (task.log_density && !one.log_density_error) continue;
      if (task.want_bound && !one.bound) continue;
      if (task.derivative != Derivative::kNone && one.plan.fixed() == nullptr) continue;
      if (!Fits(one.plan, task, model)) continue;
      options.push_back({.measured = &one, .seconds = SecondsOf(one, task.rows)});
    }
  };
  if (!IsMeasuredTask(model, task)) return options;
  add(model.calibration, false);
  for (const CorrectionState& state : model.corrections) {
    if (state.active != nullptr) add(state.active->calibration, true);
  }
  return options;
}

// Plans whose rows have one generation at most: those of a learned solver, and classical ones.
absl::StatusOr<ServedPlan> PerRow(const AutoPlan& wanted, const ServedModel& model, Task task,
                                  Tier tier) {
  task.want_bound = false;  // plans without a bound may be the last
  std::vector<PlanOption> options = OptionsFor(model, task, tier);
  std::erase_if(options, [](const PlanOption& option) {
    const Plan& plan = option.measured->plan;
    return plan.hypersolved() && plan.fixed()->method.method != Method::kLearned;
  });
  HS_ASSIGN_OR_RETURN(const auto ladder, ChooseLadder(*wanted.target_error, options));
  ServedPlan served{.plan = ladder.front().measured->plan, .per_row = wanted};
  std::vector<std::string> names;
  for (const PlanOption& option : ladder) names.push_back(PrintPlan(option.measured->plan));
  for (size_t i = 1; i < ladder.size(); ++i) served.later.push_back(ladder[i].measured->plan);
  served.reason = absl::StrCat("chosen for '", PrintPlan({.choice = wanted}),
                               "' among what was measured: ", absl::StrJoin(names, ", then "));
  return served;
}

absl::StatusOr<ServedPlan> Automatic(const AutoPlan& wanted, const ServedModel& model,
                                     const Task& task, Tier tier) {
  const auto annotated = [&](const absl::Status& status) {
    return Annotate(
        status,
        absl::StrCat("model '", model.name, "', tier ", Absl(TierName(tier)),
                     task.want_bound && !wanted.per_row ? ", plans with an error bound" : ""));
  };
  if (wanted.per_row) {
    absl::StatusOr<ServedPlan> served = PerRow(wanted, model, task, tier);
    return served.ok() ? served : annotated(served.status());
  }
  const auto chosen = ChoosePlan(wanted, OptionsFor(model, task, tier));
  if (!chosen.ok()) return annotated(chosen.status());
  return ServedPlan{
      .plan = chosen->measured->plan,
      .reason = absl::StrCat(
          "chosen for '", PrintPlan({.choice = wanted}), "' among what was ",
          wanted.target_error ? "measured: the fewest MACs" : "measured: the least error")};
}

Plan BestClassical(const Calibration& calibration) {
  std::vector<PlanOption> options;
  for (const PlanCalibration& one : calibration.plans) {
    if (!one.plan.hypersolved() && one.plan.tier == Tier::kExact) {
      options.push_back({.measured = &one});
    }
  }
  absl::StatusOr<PlanOption> best = absl::NotFoundError("no target");
  if (calibration.default_error > 0) {
    best = ChoosePlan({.target_error = calibration.default_error}, options);
  }
  if (!best.ok()) best = ChoosePlan({.time_budget_seconds = 1}, options);
  return best.ok() ? best->measured->plan : Plan{.choice = kFallbackPlan};
}

// Why a hypersolved plan is not served; empty: it is.
std::string WhyNotServed(const FixedPlan& plan, const ServedModel& model) {
  const CorrectionState* state = model.Find(plan.method);
  if (state == nullptr) return "the model has no such hypersolver";
  if (state->active == nullptr) {
    return state->problem.empty() ? "no generation is served" : state->problem;
  }
  const HypersolverSpec& spec = state->active->correction->spec();
  return std::string(
      CheckApplies(*state->active->correction, plan, spec.direction, model.model->spec().span)
          .message());
}

}  // namespace

bool IsMeasuredTask(const ServedModel& model, const Task& task) {
  const ModelSpec& spec = model.model->spec();
  return task.direction == MeasuredDirection(spec) && task.span == spec.span &&
         task.guidance == 0 && task.knots.empty();
}

ServedPlan DefaultOf(const ServedModel& model) {
  const Plan plan = DefaultPlanOf(model.calibration);
  if (!plan.hypersolved()) return {.plan = plan};
  const std::string why = WhyNotServed(*plan.fixed(), model);
  if (why.empty()) return {.plan = plan};
  const Plan instead = BestClassical(model.calibration);
  return {.plan = instead,
          .reason = absl::StrCat("the default plan '", PrintPlan(plan), "' is replaced by '",
                                 PrintPlan(instead), "': ", why)};
}

absl::StatusOr<ServedPlan> PlanFor(const Plan& asked, const ServedModel& model, const Task& task) {
  if (const auto* wanted = std::get_if<AutoPlan>(&asked.choice)) {
    return Automatic(*wanted, model, task, asked.tier);
  }
  if (!std::holds_alternative<DefaultPlan>(asked.choice)) return ServedPlan{.plan = asked};
  ServedPlan served = DefaultOf(model);
  const auto* wanted = std::get_if<AutoPlan>(&served.plan.choice);
  const bool possible =
      wanted != nullptr ? IsMeasuredTask(model, task) : Fits(served.plan, task, model);
  if (!possible) {
    served.reason =
        absl::StrCat("the default plan '", PrintPlan(served.plan), "' does not fit what is asked");
    served.plan = {.choice = kFallbackPlan};
  } else if (wanted != nullptr) {
    // Who asks for a sample's density too gets the same sample.
    Task without_density = task;
    without_density.log_density = false;
    HS_ASSIGN_OR_RETURN(served, Automatic(*wanted, model, without_density, served.plan.tier));
  }
  if (asked.tier != Tier::kExact) {
    served.plan.tier = asked.tier;
    for (Plan& later : served.later) later.tier = asked.tier;
  }
  return served;
}

}  // namespace hyperserve
