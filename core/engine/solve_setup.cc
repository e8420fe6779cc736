#include "core/engine/solve_setup.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

const FixedPlan* FixedOf(const BatchSpec& spec) { return std::get_if<FixedPlan>(&spec.plan); }

bool IsFlow(const BatchSpec& spec) { return spec.model->spec().kind == ModelKind::kFlow; }

SolveOptions OptionsOf(const BatchSpec& spec) {
  const std::array<double, 2> span = spec.span.value_or(spec.model->spec().span);
  SolveOptions options{.control = {}, .s0 = span[0], .s1 = span[1], .save_at = spec.save_at};
  if (const FixedPlan* fixed = FixedOf(spec)) {
    options.tableau = TableauFor(fixed->method);
    options.control = FixedSteps{.steps = fixed->steps, .hypersolved = fixed->hypersolved};
  } else {
    const AdaptivePlan& adaptive = std::get<AdaptivePlan>(spec.plan);
    options.tableau = TableauFor(adaptive.method);
    options.control =
        ErrorControl{.rtol = adaptive.rtol, .atol = adaptive.atol, .max_steps = spec.max_steps};
  }
  return options;
}

absl::Status CheckCorrection(const BatchSpec& spec) {
  const FixedPlan* fixed = FixedOf(spec);
  const bool hypersolved = fixed != nullptr && fixed->hypersolved;
  if (hypersolved != (spec.correction != nullptr)) {
    return absl::InvalidArgumentError(hypersolved ? "a hypersolved plan without a correction"
                                                  : "a correction for another plan");
  }
  if (!hypersolved) return absl::OkStatus();
  if (spec.correction->spec().base_digest != spec.model->base_digest()) {
    return absl::InvalidArgumentError("the correction was made for another model");
  }
  const std::vector<CorrectionInput>& inputs = spec.correction->spec().inputs;
  const bool wants_slope_2 = std::count(inputs.begin(), inputs.end(), CorrectionInput::kSlope2) > 0;
  if (wants_slope_2 && TableauFor(fixed->method).solution_stages() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("the correction wants slope_2, which ",
                                                   PrintMethod(fixed->method), " does not have"));
  }
  return absl::OkStatus();
}

absl::Status CheckLogDensity(const BatchSpec& spec) {
  if (spec.log_density == LogDensity::kNone) return absl::OkStatus();
  if (!IsFlow(spec)) return absl::InvalidArgumentError("only flows have a log-density");
  const FixedPlan* fixed = FixedOf(spec);
  if (spec.log_density == LogDensity::kStepMap && fixed == nullptr) {
    return absl::InvalidArgumentError("the log-density of the step map wants a fixed plan");
  }
  if (spec.log_density == LogDensity::kDivergence && fixed != nullptr && fixed->hypersolved) {
    return absl::InvalidArgumentError(
        "the divergence of the field is not that of a hypersolved step");
  }
  if (spec.model->state_elements() > kTangentsMax) {
    return absl::UnimplementedError(absl::StrCat("an exact log-density in ",
                                                 spec.model->state_elements(),
                                                 " dimensions; the limit is ", kTangentsMax));
  }
  return absl::OkStatus();
}

}  // namespace

bool RunsToData(const BatchSpec& spec) {
  const Direction direction =
      spec.direction == Direction::kForward ? spec.model->spec().direction : spec.direction;
  return direction == Direction::kNoiseToData;
}

at::ScalarType ResultDtype(const BatchSpec& spec) {
  return spec.tier == Tier::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType SolveDtype(const BatchSpec& spec) {
  return spec.log_density == LogDensity::kStepMap ? at::kDouble : ResultDtype(spec);
}

absl::Status CheckSolve(const BatchSpec& spec) {
  if (spec.model == nullptr) return absl::InvalidArgumentError("a batch without a model");
  if (spec.tier == Tier::kFast) {
    return absl::UnimplementedError("tier fast is not built yet; exact and double are");
  }
  HS_RETURN_IF_ERROR(std::visit(
      [&](const auto& plan) { return ValidatePlan({.choice = plan, .tier = spec.tier}); },
      spec.plan));
  if (!IsFlow(spec) && spec.direction != Direction::kForward) {
    return absl::InvalidArgumentError("a classifier is solved forward only");
  }
  if (spec.want_outputs && IsFlow(spec)) {
    return absl::InvalidArgumentError("a flow has no outputs beside its state");
  }
  HS_RETURN_IF_ERROR(CheckCorrection(spec));
  HS_RETURN_IF_ERROR(CheckLogDensity(spec));
  return ValidateSolve(OptionsOf(spec));
}

RowPadding PaddingOf(const std::vector<std::pair<const LayerList*, Shape>>& nets, int64_t rows,
                     at::Device device) {
  if (device.is_cuda()) return {.multiple = 1, .at_least = Bucket(rows)};
  RowPadding padding;
  for (const auto& [layers, shape] : nets) {
    padding.multiple = std::max(padding.multiple, RowMultiple(*layers, shape));
  }
  return padding;
}

SolveSetup SetUpSolve(const BatchSpec& spec, int64_t rows, at::Device device) {
  const ModelSpec& model = spec.model->spec();
  const at::ScalarType dtype = SolveDtype(spec);
  TensorSpace::Options space{.field = spec.model->weights().Get("field", device, dtype),
                             .log_density = spec.log_density};
  std::vector<std::pair<const LayerList*, Shape>> nets = {
      {&model.field, spec.model->state_shape()}};
  if (spec.direction != Direction::kForward && spec.direction != model.direction) {
    space.reflected_clock_sum = model.span[0] + model.span[1];
  }
  if (spec.correction != nullptr) {
    const HypersolverSpec& correction = spec.correction->spec();
    space.correction = spec.correction->weights().Get("net", device, dtype);
    space.correction_inputs = correction.inputs;
    nets.emplace_back(&correction.net,
                      CorrectionInputShape(correction, spec.model->state_shape()).value());
  }
  space.padding = PaddingOf(nets, rows, device);
  const int64_t bucket = space.padding.Rows(rows);
  return {.space = TensorSpace(std::move(space)), .options = OptionsOf(spec), .bucket = bucket};
}

}  // namespace hyperserve
