#include "training/measure/calibrate.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "programs/progress.h"
#include "programs/time_after.h"
#include "programs/time_left.h"
#include "training/data/dataset.h"

namespace hyperserve {

namespace {

absl::StatusOr<std::vector<Plan>> ClassicalPlans(const Recipe& recipe) {
  std::vector<Plan> plans;
  for (const std::string& text : recipe.calibrate().plans()) {
    HS_ASSIGN_OR_RETURN(plans.emplace_back(), ParsePlan(text));
  }
  return plans;
}

std::vector<Plan> InAllTiers(const Recipe& recipe, const std::vector<Plan>& plans) {
  std::vector<Plan> all;
  for (Plan plan : plans) {
    for (const Tier tier : RecipeTiers(recipe)) {
      plan.tier = tier;
      all.push_back(plan);
    }
  }
  return all;
}

// The middle one of the MACs of fixed plans: about those of a default plan.
int64_t MiddleMacs(const Model& model, const std::vector<Plan>& plans) {
  std::vector<int64_t> macs;
  for (const Plan& plan : plans) {
    if (plan.fixed() != nullptr) macs.push_back(PlanMacs(model, nullptr, *plan.fixed()));
  }
  if (macs.empty()) return 0;
  const auto middle = macs.begin() + static_cast<std::ptrdiff_t>(macs.size() / 2);
  std::nth_element(macs.begin(), middle, macs.end());
  return *middle;
}

}  // namespace

absl::StatusOr<Measurer> MakeMeasurer(const Recipe& recipe, DeviceRuntime& runtime,
                                      std::shared_ptr<const Model> model, Direction direction,
                                      SolveInputs inputs) {
  HS_ASSIGN_OR_RETURN(const Plan reference, ParsePlan(recipe.calibrate().reference()));
  return Measurer::Make(runtime, {.model = std::move(model),
                                  .direction = direction,
                                  .inputs = std::move(inputs),
                                  .reference = reference,
                                  .batch = recipe.calibrate().batch()});
}

absl::StatusOr<Measurer> HeldOutMeasurer(const Recipe& recipe, DeviceRuntime& runtime,
                                         const std::shared_ptr<const Model>& model,
                                         Direction direction, const std::string& data_folder) {
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, model->spec(), direction, data_folder));
  HS_ASSIGN_OR_RETURN(SolveInputs rows, source.HeldOut(recipe.calibrate().rows()));
  return MakeMeasurer(recipe, runtime, model, direction, std::move(rows));
}

absl::StatusOr<std::vector<PlanCalibration>> MeasurePlans(
    const Recipe& recipe, const std::vector<Plan>& plans,
    const std::shared_ptr<const Hypersolver>& correction, Measurer& measurer) {
  const std::vector<Plan> all = InAllTiers(recipe, plans);
  TimeLeft time_left;
  for (const Plan& plan : all) time_left.Expect(1, measurer.Seconds(plan, correction));
  std::vector<PlanCalibration> measured;
  const std::string of =
      correction == nullptr ? "" : absl::StrCat(", ", PrintMethod(correction->spec().method));
  Progress progress(absl::StrCat(recipe.name(), " calibration", of),
                    static_cast<int64_t>(all.size()), "plans", [&] { return time_left.Seconds(); });
  for (size_t i = 0; i < all.size(); ++i) {
    const absl::StatusOr<PlanCalibration> one =
        time_left.Timed(i, [&] { return measurer.Measure(all[i], correction); });
    progress.Advance(1);
    if (absl::IsFailedPrecondition(one.status()) || absl::IsUnimplemented(one.status())) {
      absl::FPrintF(stderr, "%s is left out: %s\n", PrintPlan(all[i]), one.status().message());
      continue;
    }
    if (!one.ok()) return one.status();
    measured.push_back(*one);
  }
  return measured;
}

double PlansSeconds(const Recipe& recipe, const std::vector<Plan>& plans,
                    const std::shared_ptr<const Hypersolver>& correction,
                    const Measurer& measurer) {
  double seconds = 0;
  for (const Plan& plan : InAllTiers(recipe, plans)) {
    seconds += measurer.Seconds(plan, correction);
  }
  return seconds;
}

std::optional<Plan> DefaultAmong(const Recipe& recipe, const std::vector<PlanCalibration>& plans) {
  std::vector<PlanCalibration> exact;
  std::copy_if(plans.begin(), plans.end(), std::back_inserter(exact),
               [](const PlanCalibration& plan) { return plan.plan.tier == Tier::kExact; });
  return CheapestWithin(exact, recipe.calibrate().default_error(),
                        recipe.calibrate().default_agreement());
}

absl::Status CheckHeldOut(const Recipe& recipe, const ModelSpec& spec,
                          const std::string& data_folder) {
  if (!recipe.has_calibrate()) {
    return absl::InvalidArgumentError("the recipe holds no calibrate");
  }
  for (const Direction direction :
       spec.kind == ModelKind::kFlow ? std::vector{Direction::kNoiseToData, Direction::kDataToNoise}
                                     : std::vector{Direction::kForward}) {
    HS_ASSIGN_OR_RETURN(const InputSource source,
                        InputSource::Make(recipe, spec, direction, data_folder));
    HS_RETURN_IF_ERROR(source.HeldOut(recipe.calibrate().rows()).status());
  }
  return absl::OkStatus();
}

void FillCalibration(const Recipe& recipe, const Model& model, const DeviceRuntime& runtime,
                     Calibration& calibration) {
  calibration.base_digest = model.base_digest();
  const absl::StatusOr<Plan> reference = ParsePlan(recipe.calibrate().reference());
  if (reference.ok()) calibration.reference = PrintPlan(ReferenceOf(model, *reference));
  calibration.rows = recipe.calibrate().rows();
  for (const DeviceInfo& device : ListDevices()) {
    if (device.name == runtime.device()) calibration.device = device.description;
  }
}

Direction ServedDirection(const ModelSpec& spec) {
  return spec.kind == ModelKind::kFlow ? Direction::kNoiseToData : Direction::kForward;
}

absl::StatusOr<Calibration> CalibrateModel(const Recipe& recipe, const DeviceRuntime& runtime,
                                           const Model& model, Rivals& rivals) {
  Measurer& measurer = rivals.measurer();
  Calibration calibration;
  HS_ASSIGN_OR_RETURN(const std::vector<Plan> classical, ClassicalPlans(recipe));
  {
    TimeAfter after;
    after.SetRough(rivals.Seconds(MiddleMacs(model, classical)));
    HS_ASSIGN_OR_RETURN(calibration.plans, MeasurePlans(recipe, classical, nullptr, measurer));
  }
  FillCalibration(recipe, model, runtime, calibration);
  calibration.default_error = recipe.calibrate().default_error();
  calibration.default_plan = DefaultAmong(recipe, calibration.plans);
  if (!calibration.default_plan) return calibration;
  const double macs = calibration.Find(*calibration.default_plan)->macs;
  HS_ASSIGN_OR_RETURN(const auto within, rivals.Within(static_cast<int64_t>(macs)));
  const std::optional<Plan> cheapest = DefaultAmong(recipe, within);
  if (cheapest && calibration.Find(*cheapest) == nullptr) {
    HS_ASSIGN_OR_RETURN(calibration.plans.emplace_back(), measurer.Measure(*cheapest, nullptr));
    calibration.default_plan = DefaultAmong(recipe, calibration.plans);
  }
  return calibration;
}

absl::StatusOr<double> CalibrationSeconds(const Recipe& recipe, DeviceRuntime& runtime,
                                          const std::shared_ptr<const Model>& untrained,
                                          const std::string& data_folder) {
  const int64_t rows = recipe.calibrate().rows();
  const int64_t measured = std::min<int64_t>(rows, recipe.calibrate().batch());
  Recipe batch = recipe;
  batch.mutable_calibrate()->set_rows(static_cast<int>(measured));
  HS_ASSIGN_OR_RETURN(
      Measurer measurer,
      HeldOutMeasurer(batch, runtime, untrained, ServedDirection(untrained->spec()), data_folder));
  HS_ASSIGN_OR_RETURN(const std::vector<Plan> classical, ClassicalPlans(recipe));
  // The reference is solved once more by Quality.
  double of_rows = 2 * measurer.reference_seconds() +
                   Rivals(*untrained, measurer).Seconds(MiddleMacs(*untrained, classical));
  double of_runs = 0;
  for (const Plan& plan : InAllTiers(recipe, classical)) {
    const double error = measurer.ErrorSeconds(plan, nullptr);
    of_rows += error;
    of_runs += measurer.Seconds(plan, nullptr) - error;
  }
  return of_runs + of_rows * static_cast<double>(rows) / static_cast<double>(measured);
}

}  // namespace hyperserve
