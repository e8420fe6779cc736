#include "core/engine/choose_engine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "core/ode/solve_options.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

bool IsFlow(const BatchSpec& spec) { return spec.model->spec().kind == ModelKind::kFlow; }

absl::Status CheckCorrection(const BatchSpec& spec) {
  if (spec.correction == nullptr) return absl::OkStatus();
  if (spec.correction->spec().base_digest != spec.model->base_digest()) {
    return absl::InvalidArgumentError("the correction was made for another model");
  }
  const std::vector<CorrectionInput>& inputs = spec.correction->spec().inputs;
  const bool wants_slope_2 = std::count(inputs.begin(), inputs.end(), CorrectionInput::kSlope2) > 0;
  if (spec.correction->spec().learned() != (spec.method.method == Method::kLearned)) {
    return absl::InvalidArgumentError(absl::StrCat("the correction is for ",
                                                   PrintMethod(spec.correction->spec().method),
                                                   ", the plan asks ", PrintMethod(spec.method)));
  }
  if (wants_slope_2 && TableauFor(spec.method).solution_stages() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("the correction wants slope_2, which ",
                                                   PrintMethod(spec.method), " does not have"));
  }
  return absl::OkStatus();
}

absl::Status CheckTableMethod(const BatchSpec& spec) {
  if (!RunsFromTable(spec.method.method)) return absl::OkStatus();
  const std::string name = PrintMethod(spec.method);
  const bool learned = spec.method.method == Method::kLearned;
  if (learned != (spec.correction != nullptr && spec.correction->spec().learned())) {
    return absl::InvalidArgumentError(learned ? "a learned solve needs the tables of its model"
                                              : "ab2 takes no correction");
  }
  if (spec.stepping != Stepping::kFixed) {
    return absl::InvalidArgumentError(absl::StrCat(name, " takes no tolerance"));
  }
  if (!spec.save_at.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " saves no states on its way"));
  }
  return absl::OkStatus();
}

absl::Status CheckGrid(const BatchSpec& spec) {
  if (spec.grid.uniform()) return absl::OkStatus();
  if (spec.stepping == Stepping::kFixed && !RunsFromTable(spec.method.method)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("a grid wants fixed steps of a one-step method");
}

absl::Status CheckGuidance(const BatchSpec& spec) {
  if (spec.guidance == 0) return absl::OkStatus();
  if (spec.model->spec().no_condition.empty()) {
    return absl::InvalidArgumentError("guidance of a model without condition.none");
  }
  if (spec.correction != nullptr) {
    return absl::InvalidArgumentError(
        "guidance of a hypersolved plan: its correction is of f alone");
  }
  const bool steps = spec.stepping == Stepping::kFixed && !RunsFromTable(spec.method.method);
  if (spec.guidance == 1 || (steps && spec.save_at.empty())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a weight of guidance for each step wants fixed steps of a one-step method, and saves no "
      "states on the way");
}

absl::Status CheckKnots(const BatchSpec& spec) {
  const std::vector<double>& depths = spec.knots.depths;
  if (depths.empty()) return absl::OkStatus();
  if (spec.model->spec().condition.empty()) {
    return absl::InvalidArgumentError("knots of a condition for a model that has none");
  }
  if (spec.correction != nullptr || RunsFromTable(spec.method.method) || spec.guidance > 1) {
    return absl::InvalidArgumentError(
        "a condition on knots wants a classical one-step method, and one weight of guidance");
  }
  const bool rising = std::ranges::adjacent_find(depths, std::greater_equal<>()) == depths.end();
  const bool finite = std::isfinite(depths.front()) && std::isfinite(depths.back());
  if (depths.size() > 1 && rising && finite) return absl::OkStatus();
  return absl::InvalidArgumentError("the knots of a condition are two or more rising depths");
}

absl::Status CheckLogDensity(const BatchSpec& spec) {
  const bool estimated = spec.log_density == LogDensity::kHutchinson;
  if (estimated ? spec.probes < kProbesMin || spec.probes > kProbesMax : spec.probes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.probes, " probes; an estimated log-density has from ", kProbesMin, " to ",
                     kProbesMax, ", and no other has any"));
  }
  if (spec.log_density == LogDensity::kNone) return absl::OkStatus();
  if (!IsFlow(spec)) return absl::InvalidArgumentError("only flows have a log-density");
  if (spec.log_density == LogDensity::kStepMap && spec.stepping != Stepping::kFixed) {
    return absl::InvalidArgumentError("the log-density of the step map wants a fixed plan");
  }
  if (spec.log_density != LogDensity::kStepMap && spec.correction != nullptr) {
    return absl::InvalidArgumentError(
        "the divergence of the field is not that of a hypersolved step");
  }
  return absl::OkStatus();
}

absl::Status CheckDerivative(const BatchSpec& spec) {
  if (spec.derivative == Derivative::kNone) return absl::OkStatus();
  if (spec.stepping != Stepping::kFixed) {
    return absl::InvalidArgumentError("a derivative is that of a fixed plan");
  }
  if (spec.tier == Tier::kFast) {
    return absl::InvalidArgumentError("derivatives are computed in tiers exact and double");
  }
  if (spec.entry == Entry::kNoise || spec.dtype == Dtype::kU8) {
    return absl::InvalidArgumentError("a derivative wants rows of floats");
  }
  if (!spec.save_at.empty() || spec.want_outputs || spec.want_depth || spec.want_distance) {
    return absl::InvalidArgumentError("a derivative is that of z(s1) or of log p alone");
  }
  if (spec.log_density == LogDensity::kNone) return absl::OkStatus();
  if (spec.log_density == LogDensity::kHutchinson) {
    return absl::InvalidArgumentError("the gradient of a log-density is that of the exact one");
  }
  const Direction own = spec.model->spec().direction;
  const Direction direction = spec.direction == Direction::kForward ? own : spec.direction;
  if (spec.derivative == Derivative::kVjp && direction == Direction::kDataToNoise) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "the derivative of a log-density is a gradient, from data to noise");
}

// What code as a field does not do.
absl::Status CheckFieldPackage(const BatchSpec& spec) {
  if (!spec.model->spec().field_package) return absl::OkStatus();
  if (!spec.model->solvable()) {
    return absl::InvalidArgumentError("the model's field.pt2 was read, but not loaded");
  }
  if (spec.tier == Tier::kDouble) {
    return absl::InvalidArgumentError(
        "the model's field is code (field.pt2), which computes in float32: no tier double");
  }
  if (spec.log_density != LogDensity::kNone) {
    return absl::InvalidArgumentError(
        "the model's field is code (field.pt2), which has no derivatives, so no log-density");
  }
  if (spec.derivative != Derivative::kNone) {
    return absl::InvalidArgumentError(
        "the model's field is code (field.pt2), which has no derivatives");
  }
  return absl::OkStatus();
}

absl::Status CheckEntry(const BatchSpec& spec) {
  if (spec.entry == Entry::kNoise) {
    if (IsFlow(spec)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "a ", Absl(ModelKindName(spec.model->spec().kind)), " does not start from noise"));
  }
  const bool taken =
      spec.dtype == Dtype::kF32 || (spec.dtype == Dtype::kU8 && spec.entry == Entry::kInput) ||
      (spec.dtype == Dtype::kF64 && (spec.entry == Entry::kState || spec.tier == Tier::kDouble));
  if (taken) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rows of ", Absl(DtypeName(spec.dtype)),
                   " are not taken here: wanted F32, U8 for a model's input, F64 for states and in "
                   "tier double"));
}

}  // namespace

bool IsReflected(const BatchSpec& spec) {
  return spec.direction != Direction::kForward && spec.direction != spec.model->spec().direction;
}

SolveOptions OptionsOf(const BatchSpec& spec) {
  const std::array<double, 2>& own = spec.model->spec().span;
  const std::array<double, 2> span = spec.span.value_or(own);
  std::vector<double> breaks;
  for (const double knot : spec.knots.depths) {
    const double depth = IsReflected(spec) ? own[0] + own[1] - knot : knot;
    if (depth > span[0] && depth < span[1]) breaks.push_back(depth);
  }
  std::ranges::sort(breaks);
  return {.tableau = TableauFor(spec.method),
          .stepping = spec.stepping,
          .hypersolved = spec.correction != nullptr,
          .grid = spec.grid,
          .s0 = span[0],
          .s1 = span[1],
          .save_at = spec.save_at,
          .breaks = std::move(breaks)};
}

absl::Status CheckSpec(const BatchSpec& spec) {
  if (spec.model == nullptr) return absl::InvalidArgumentError("a batch without a model");
  const ModelKind kind = spec.model->spec().kind;
  if (!IsFlow(spec) && spec.direction != Direction::kForward) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", Absl(ModelKindName(kind)), " is solved forward only"));
  }
  if (spec.want_outputs && !HasOutputs(kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", Absl(ModelKindName(kind)), " has no outputs beside its states"));
  }
  HS_RETURN_IF_ERROR(CheckFieldPackage(spec));
  HS_RETURN_IF_ERROR(CheckEntry(spec));
  HS_RETURN_IF_ERROR(CheckCorrection(spec));
  HS_RETURN_IF_ERROR(CheckTableMethod(spec));
  HS_RETURN_IF_ERROR(CheckGrid(spec));
  HS_RETURN_IF_ERROR(CheckGuidance(spec));
  HS_RETURN_IF_ERROR(CheckKnots(spec));
  HS_RETURN_IF_ERROR(CheckLogDensity(spec));
  HS_RETURN_IF_ERROR(CheckDerivative(spec));
  if (spec.want_distance && spec.method.method != Method::kLearned) {
    return absl::InvalidArgumentError("only learned solvers have a distance of each row");
  }
  return ValidateSolve(OptionsOf(spec));
}

absl::Status ReadableSupports(const BatchSpec& spec, int64_t rows) {
  if (spec.tier == Tier::kFast) {
    return absl::UnimplementedError(
        "its tiers are exact and double; tier fast is that of the fused engine, on GPUs");
  }
  const bool exact =
      spec.log_density == LogDensity::kDivergence || spec.log_density == LogDensity::kStepMap;
  if (exact && spec.model->state_elements() > kTangentsMax) {
    return absl::UnimplementedError(absl::StrCat("an exact log-density in ",
                                                 spec.model->state_elements(),
                                                 " dimensions; the limit is ", kTangentsMax));
  }
  return absl::OkStatus();
}

absl::StatusOr<EngineChoice> ChooseEngine(const BatchSpec& spec, int64_t rows,
                                          std::span<const EngineKind> device) {
  HS_RETURN_IF_ERROR(CheckSpec(spec));
  std::string against;
  for (const EngineKind& kind : device) {
    const absl::Status supported = kind.supports(spec, rows);
    if (supported.ok()) {
      return EngineChoice{.engine = std::string(kind.name),
                          .why = against.empty() ? "the first choice of this device" : against};
    }
    if (!absl::IsUnimplemented(supported)) return supported;
    absl::StrAppend(&against, against.empty() ? "" : "; ", "not ", Absl(kind.name), ": ",
                    supported.message());
  }
  return absl::UnimplementedError(against.empty() ? "this device has no engine" : against);
}

}  // namespace hyperserve
