#include "core/engine/fused/fused_flows.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/choose_engine.h"
#include "core/engine/fused/flow_model.h"
#include "core/engine/readable/solve_setup.h"
#include "core/kernels/flow/flow_model.h"
#include "core/model/layers/layer.h"
#include "core/model/spec/spec.h"
#include "core/ode/solve_options.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

bool RunsAgainst(const BatchSpec& spec) {
  return spec.direction != Direction::kForward && spec.direction != spec.model->spec().direction;
}

kernels::FlowDensity DensityOf(LogDensity density) {
  switch (density) {
    case LogDensity::kNone:
      return kernels::FlowDensity::kNone;
    case LogDensity::kDivergence:
      return kernels::FlowDensity::kDivergence;
    case LogDensity::kStepMap:
      return kernels::FlowDensity::kStepMap;
    case LogDensity::kHutchinson:
      break;  // CheckFixed and CheckAdaptive refuse it: no plan of it gets here.
  }
  return kernels::FlowDensity::kNone;
}

absl::Status CheckFixed(const BatchSpec& spec) {
  if (spec.tier != Tier::kFast) {
    return absl::UnimplementedError("its fixed steps have tier fast only");
  }
  if (spec.method.method == Method::kAb2) {
    return absl::UnimplementedError("it runs one-step methods and learned tables only");
  }
  if (spec.log_density == LogDensity::kHutchinson) {
    return absl::UnimplementedError("it estimates no log-density");
  }
  if (spec.log_density != LogDensity::kNone &&
      spec.model->state_elements() > kernels::kFlowTangents) {
    return absl::UnimplementedError(absl::StrCat("it has log-densities of at most ",
                                                 kernels::kFlowTangents, " dimensions, not of ",
                                                 spec.model->state_elements()));
  }
  return absl::OkStatus();
}

absl::Status CheckAdaptive(const BatchSpec& spec) {
  if (spec.tier != Tier::kExact) {
    return absl::UnimplementedError("its error control has tier exact only");
  }
  if (!TableauFor(spec.method).fsal()) {
    return absl::UnimplementedError(
        absl::StrCat("its error control wants a method whose last stage is the next first; ",
                     PrintMethod(spec.method), " is none"));
  }
  if (spec.log_density != LogDensity::kNone) {
    return absl::UnimplementedError("its error control has no log-density");
  }
  return absl::OkStatus();
}

// What the fused engine does not do for any weights.
absl::Status CheckTask(const BatchSpec& spec) {
  if (spec.model->spec().field_package) {
    return absl::UnimplementedError("it solves fields of layers only, no field.pt2");
  }
  const ModelSpec& model = spec.model->spec();
  if (model.kind != ModelKind::kFlow) return absl::UnimplementedError("it solves flows only");
  if (!model.condition.empty()) {
    return absl::UnimplementedError("it solves models without a condition only");
  }
  if (spec.want_distance) {
    return absl::UnimplementedError("it has no distance of each row, which a bound needs");
  }
  if (!spec.grid.uniform()) return absl::UnimplementedError("its steps are equal, without a grid");
  HS_RETURN_IF_ERROR(spec.stepping == Stepping::kFixed ? CheckFixed(spec) : CheckAdaptive(spec));
  if (!spec.save_at.empty()) return absl::UnimplementedError("it saves no states on the way");
  const std::array<double, 2> span = spec.span.value_or(model.span);
  if (RunsAgainst(spec) && span[0] + span[1] != model.span[0] + model.span[1]) {
    return absl::UnimplementedError(absl::StrCat("against its field it runs spans around ",
                                                 (model.span[0] + model.span[1]) / 2,
                                                 " only, the middle of the model's"));
  }
  return absl::OkStatus();
}

}  // namespace

kernels::FlowPlan FlowPlanOf(const BatchSpec& spec, const FixedSteps& control) {
  const SolveOptions options = OptionsOf(spec);
  return {.tableau = options.tableau,
          .steps = static_cast<int>(control.steps),
          .hypersolved = options.hypersolved,
          .against = RunsAgainst(spec),
          .s0 = options.s0,
          .s1 = options.s1,
          .density = DensityOf(spec.log_density),
          .to_data = RunsToData(spec)};
}

kernels::FlowAdaptivePlan FlowPlanOf(const BatchSpec& spec, const ErrorControl& control) {
  const SolveOptions options = OptionsOf(spec);
  return {.tableau = options.tableau,
          .against = RunsAgainst(spec),
          .s0 = options.s0,
          .s1 = options.s1,
          .rtol = control.rtol,
          .atol = control.atol,
          .attempts_max = control.max_steps};
}

absl::Status FusedFlows::Supports(const BatchSpec& spec) {
  HS_RETURN_IF_ERROR(CheckTask(spec));
  if (spec.method.method != Method::kLearned) return Supports(spec, 0);
  for (const TableSpec& table : spec.correction->spec().tables) {
    HS_RETURN_IF_ERROR(Supports(spec, table.evaluations));
  }
  return absl::OkStatus();
}

absl::Status FusedFlows::Supports(const BatchSpec& spec, int64_t evaluations) {
  HS_ASSIGN_OR_RETURN(const std::shared_ptr<const FusedFlow> flow, Find(spec, evaluations));
  const bool fixed = spec.stepping == Stepping::kFixed;
  if (flow->Takes(fixed ? kernels::FlowTask(FlowPlanOf(spec, FixedSteps{}))
                        : kernels::FlowTask(FlowPlanOf(spec, ErrorControl{})))) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat("the model's weights and the stages of ",
                                               PrintMethod(spec.method),
                                               " do not fit in the memory of a multiprocessor"));
}

absl::StatusOr<std::shared_ptr<const FusedFlow>> FusedFlows::Find(const BatchSpec& spec,
                                                                  int64_t evaluations) {
  const kernels::FlowPrecision precision =
      spec.tier == Tier::kFast ? kernels::FlowPrecision::kFast : kernels::FlowPrecision::kExact;
  const Key key(spec.model.get(), spec.correction.get(), precision, evaluations);
  const auto is_of = [&](const Entry& entry) {
    return entry.model.lock() == spec.model && entry.correction.lock() == spec.correction;
  };
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end() && is_of(found->second)) return found->second.flow;
  }
  Entry made{.model = spec.model, .correction = spec.correction, .flow = [&]() -> Found {
               HS_ASSIGN_OR_RETURN(const kernels::FlowModel flow,
                                   FlowModelOf(*spec.model, spec.correction.get(), evaluations));
               return make_(flow, precision);
             }()};
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& one) {
    const Entry& entry = one.second;
    const bool had_correction = std::get<const Hypersolver*>(one.first) != nullptr;
    return entry.model.expired() || (had_correction && entry.correction.expired());
  });
  return entries_.try_emplace(key, std::move(made)).first->second.flow;
}

}  // namespace hyperserve
