#include "server/warm_up.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

BatchSpec SpecOf(const WarmUpSubject& subject, const Plan& plan) {
  const ModelSpec& model = subject.model->spec();
  const bool classifier = model.kind == ModelKind::kClassifier;
  BatchSpec spec{.model = subject.model,
                 .tier = plan.tier,
                 .entry = classifier ? Entry::kInput : Entry::kNoise,
                 .direction = classifier ? Direction::kForward : Direction::kNoiseToData,
                 .want_outputs = classifier};
  if (plan.adaptive() != nullptr) SetPlan(*plan.adaptive(), spec);
  if (plan.fixed() != nullptr) SetPlan(*plan.fixed(), spec);
  if (plan.hypersolved()) {
    spec.correction = subject.correction;
    spec.direction = subject.correction->spec().direction;
  }
  return spec;
}

std::vector<Plan> PlansOf(const WarmUpSubject& subject) {
  std::vector<Plan> plans;
  for (const PlanCalibration& measured : subject.calibration->plans) plans.push_back(measured.plan);
  if (subject.correction == nullptr) {
    plans.push_back(DefaultPlanOf(*subject.calibration));
  } else {
    plans.push_back(
        {.choice = FixedPlan{
             .method = subject.correction->spec().method, .steps = 1, .hypersolved = true}});
  }
  // A model's calibration may list hypersolved plans; they are warmed with their own generation.
  std::erase_if(
      plans, [&](const Plan& plan) { return plan.hypersolved() && subject.correction == nullptr; });
  return plans;
}

// One step is enough, since a solve repeats it; of a learned solver its longest table.
StepControl OneStep(const BatchSpec& spec) {
  if (spec.method.method == Method::kLearned) {
    return FixedSteps{.steps = spec.correction->spec().steps.back()};
  }
  if (spec.stepping == Stepping::kFixed) return FixedSteps{.steps = 1};
  return ErrorControl{.rtol = 1e-3, .atol = 1e-3, .max_steps = 1};
}

}  // namespace

std::vector<BatchSpec> WarmUpSpecs(const WarmUpSubject& subject) {
  std::vector<BatchSpec> specs;
  for (const Plan& plan : PlansOf(subject)) {
    BatchSpec spec = SpecOf(subject, plan);
    if (std::find(specs.begin(), specs.end(), spec) == specs.end()) {
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

std::vector<int64_t> WarmUpRows(std::string_view device, int64_t batch_rows_max) {
  if (device == "cpu") return {1};
  std::vector<int64_t> rows;
  for (int64_t bucket = 1; bucket <= batch_rows_max; bucket *= 2) rows.push_back(bucket);
  return rows;
}

absl::Status WarmUp(const WarmUpSubject& subject, int64_t batch_rows_max,
                    const std::function<bool()>& interrupted, DeviceRuntime& runtime) {
  const std::vector<int64_t> buckets = WarmUpRows(runtime.device(), batch_rows_max);
  for (const BatchSpec& spec : WarmUpSpecs(subject)) {
    // A calibration may list plans of tier fast that were measured on a GPU.
    if (spec.tier == Tier::kFast &&
        absl::IsUnimplemented(ChooseEngine(spec, 1, runtime.engines()).status())) {
      continue;
    }
    for (const int64_t rows : buckets) {
      HS_RETURN_IF_ERROR(
          Annotate(runtime.WarmUp(spec, OneStep(spec), rows, interrupted), "warm-up"));
    }
    BatchSpec fast = spec;
    fast.tier = Tier::kFast;
    if (fast == spec) continue;
    const absl::Status there = ChooseEngine(fast, 1, runtime.engines()).status();
    if (absl::IsUnimplemented(there)) continue;
    HS_RETURN_IF_ERROR(Annotate(there, "warm-up of tier fast"));
    HS_RETURN_IF_ERROR(
        Annotate(runtime.WarmUp(fast, OneStep(fast), 1, interrupted), "warm-up of tier fast"));
  }
  return absl::OkStatus();
}

}  // namespace hyperserve
