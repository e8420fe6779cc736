#include "core/engine/fused/fused_flows.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/choose_engine.h"
#include "core/engine/fused/flow_model.h"
#include "core/model/layers/layer.h"
#include "core/model/spec/spec.h"
#include "core/ode/solve_options.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

bool RunsAgainst(const BatchSpec& spec) {
  return spec.direction != Direction::kForward && spec.direction != spec.model->spec().direction;
}

// What the fused engine does not do for any weights.
absl::Status CheckTask(const BatchSpec& spec) {
  const ModelSpec& model = spec.model->spec();
  if (spec.tier != Tier::kFast) return absl::UnimplementedError("it has tier fast only");
  if (model.kind != ModelKind::kFlow) return absl::UnimplementedError("it solves flows only");
  if (spec.stepping != Stepping::kFixed) {
    return absl::UnimplementedError("it takes fixed steps only");
  }
  if (RunsFromTable(spec.method.method)) {
    return absl::UnimplementedError("it runs one-step methods only");
  }
  if (!spec.save_at.empty()) return absl::UnimplementedError("it saves no states on the way");
  if (spec.log_density != LogDensity::kNone) {
    return absl::UnimplementedError("it has no log-density");
  }
  const std::array<double, 2> span = spec.span.value_or(model.span);
  if (RunsAgainst(spec) && span[0] + span[1] != model.span[0] + model.span[1]) {
    return absl::UnimplementedError(absl::StrCat("against its field it runs spans around ",
                                                 (model.span[0] + model.span[1]) / 2,
                                                 " only, the middle of the model's"));
  }
  return absl::OkStatus();
}

}  // namespace

kernels::FlowPlan FlowPlanOf(const BatchSpec& spec, int64_t steps) {
  const SolveOptions options = OptionsOf(spec);
  return {.tableau = options.tableau,
          .steps = static_cast<int>(steps),
          .hypersolved = options.hypersolved,
          .against = RunsAgainst(spec),
          .s0 = options.s0,
          .s1 = options.s1};
}

absl::Status FusedFlows::Supports(const BatchSpec& spec) {
  HS_RETURN_IF_ERROR(CheckTask(spec));
  HS_ASSIGN_OR_RETURN(const std::shared_ptr<const FusedFlow> flow, Find(spec));
  if (flow->Takes(FlowPlanOf(spec, 1))) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the model's weights and the stages of ",
                                               PrintMethod(spec.method),
                                               " do not fit in the memory of a multiprocessor"));
}

absl::StatusOr<std::shared_ptr<const FusedFlow>> FusedFlows::Find(const BatchSpec& spec) {
  const std::pair key(spec.model.get(), spec.correction.get());
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
                                   FlowModelOf(*spec.model, spec.correction.get()));
               return make_(flow);
             }()};
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& one) {
    const Entry& entry = one.second;
    const bool had_correction = one.first.second != nullptr;
    return entry.model.expired() || (had_correction && entry.correction.expired());
  });
  return entries_.try_emplace(key, std::move(made)).first->second.flow;
}

}  // namespace hyperserve
