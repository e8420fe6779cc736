#include "core/engine/fused/fused_convs.h"

#include "core/base/status.h"
#include "core/engine/choose_engine.h"
#include "core/engine/fused/conv_model.h"
#include "core/model/spec/spec.h"
#include "core/ode/solve_options.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

// What the fused engine does not do for any weights.
absl::Status CheckTask(const BatchSpec& spec) {
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
  if (spec.stepping != Stepping::kFixed) {
    return absl::UnimplementedError("it takes fixed steps only");
  }
  if (!spec.grid.uniform()) return absl::UnimplementedError("its steps are equal, without a grid");
  if (RunsFromTable(spec.method.method)) {
    return absl::UnimplementedError("it runs one-step methods only");
  }
  if (!spec.save_at.empty()) return absl::UnimplementedError("it saves no states on the way");
  if (spec.log_density != LogDensity::kNone) {
    return absl::UnimplementedError("it has no log-density of images");
  }
  return absl::OkStatus();
}

}  // namespace

kernels::ConvPlan ConvPlanOf(const BatchSpec& spec, int64_t steps) {
  const SolveOptions options = OptionsOf(spec);
  return {.tableau = options.tableau,
          .steps = static_cast<int>(steps),
          .hypersolved = options.hypersolved,
          .s0 = options.s0,
          .s1 = options.s1};
}

absl::Status FusedConvs::Supports(const BatchSpec& spec) {
  HS_RETURN_IF_ERROR(CheckTask(spec));
  HS_ASSIGN_OR_RETURN(const std::shared_ptr<const FusedConv> conv, Find(spec));
  if (conv->Fits()) return absl::OkStatus();
  return absl::UnimplementedError(
      "an image and the widest layer's weights do not fit in the memory of a multiprocessor");
}

absl::StatusOr<std::shared_ptr<const FusedConv>> FusedConvs::Find(const BatchSpec& spec) {
  using Found = PackedModels<FusedConv>::Found;
  return packed_.Find(spec, [&]() -> Found {
    HS_ASSIGN_OR_RETURN(const kernels::ConvModel conv,
                        ConvModelOf(*spec.model, spec.correction.get()));
    return make_(conv);
  });
}

}  // namespace hyperserve
