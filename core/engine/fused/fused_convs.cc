#include "core/engine/fused/fused_convs.h"

#include <variant>

#include "core/base/status.h"
#include "core/engine/choose_engine.h"
#include "core/engine/fused/conv_model.h"
#include "core/model/spec/spec.h"
#include "core/ode/solve_options.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

// What the fused engine does not do for any weights.
absl::Status CheckTask(const BatchSpec& spec) {
  if (spec.model->spec().field_package) {
    return absl::UnimplementedError("it solves fields of layers only, no field.pt2");
  }
  if (spec.tier != Tier::kFast) return absl::UnimplementedError("it has tier fast only");
  if (!spec.model->spec().condition.empty()) {
    return absl::UnimplementedError("it solves models without a condition only");
  }
  if (spec.entry == Entry::kNoise) {
    return absl::UnimplementedError("it makes no noise for states that are images");
  }
  if (spec.direction != Direction::kForward && spec.direction != spec.model->spec().direction) {
    return absl::UnimplementedError("it solves images in their field's own direction only");
  }
  if (spec.stepping != Stepping::kFixed && !TableauFor(spec.method).fsal()) {
    return absl::UnimplementedError(
        "under error control it runs methods only whose last stage is the next step's first");
  }
  if (!spec.grid.uniform()) return absl::UnimplementedError("its steps are equal, without a grid");
  if (spec.method.method == Method::kAb2) {
    return absl::UnimplementedError("it runs one-step methods and learned tables only");
  }
  if (!spec.save_at.empty()) return absl::UnimplementedError("it saves no states on the way");
  if (spec.log_density != LogDensity::kNone) {
    return absl::UnimplementedError("it has no log-density of images");
  }
  if (spec.want_distance) return absl::UnimplementedError("it tells no distance of each row");
  return absl::OkStatus();
}

}  // namespace

kernels::ConvTask ConvTaskOf(const BatchSpec& spec, const StepControl& control) {
  const SolveOptions options = OptionsOf(spec);
  if (const auto* fixed = std::get_if<FixedSteps>(&control)) {
    return kernels::ConvPlan{.tableau = options.tableau,
                             .steps = static_cast<int>(fixed->steps),
                             .hypersolved = options.hypersolved,
                             .s0 = options.s0,
                             .s1 = options.s1};
  }
  const ErrorControl& error = std::get<ErrorControl>(control);
  return kernels::ConvAdaptivePlan{.tableau = options.tableau,
                                   .s0 = options.s0,
                                   .s1 = options.s1,
                                   .rtol = error.rtol,
                                   .atol = error.atol,
                                   .attempts_max = error.max_steps};
}

absl::Status FusedConvs::Supports(const BatchSpec& spec) {
  HS_RETURN_IF_ERROR(CheckTask(spec));
  if (spec.method.method != Method::kLearned) return Supports(spec, 0);
  for (const TableSpec& table : spec.correction->spec().tables) {
    HS_RETURN_IF_ERROR(Supports(spec, table.evaluations));
  }
  return absl::OkStatus();
}

absl::Status FusedConvs::Supports(const BatchSpec& spec, int64_t evaluations) {
  HS_ASSIGN_OR_RETURN(const std::shared_ptr<const FusedConv> conv, Find(spec, evaluations));
  if (conv->Fits()) return absl::OkStatus();
  return absl::UnimplementedError(
      "an image and the widest layer's weights do not fit in the memory of a multiprocessor");
}

absl::StatusOr<std::shared_ptr<const FusedConv>> FusedConvs::Find(const BatchSpec& spec,
                                                                  int64_t evaluations) {
  using Found = PackedModels<FusedConv>::Found;
  return packed_.Find(spec, evaluations, [&]() -> Found {
    HS_ASSIGN_OR_RETURN(const kernels::ConvModel conv,
                        ConvModelOf(*spec.model, spec.correction.get(), evaluations));
    return make_(conv);
  });
}

}  // namespace hyperserve
