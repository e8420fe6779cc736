#include "training/measure/calibrate.h"

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/model/net/model.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "programs/stop.h"
#include "training/data/dataset.h"

namespace hyperserve {

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

absl::StatusOr<std::vector<PlanCalibration>> MeasureClassical(const Recipe& recipe,
                                                              Measurer& measurer) {
  std::vector<PlanCalibration> measured;
  for (const std::string& text : recipe.calibrate().plans()) {
    if (StopRequested()) return Stopped();
    HS_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(text));
    const absl::StatusOr<PlanCalibration> one = measurer.Measure(plan, nullptr);
    if (absl::IsFailedPrecondition(one.status())) {
      absl::FPrintF(stderr, "%s is left out: %s\n", text, one.status().message());
      continue;
    }
    if (!one.ok()) return one.status();
    measured.push_back(*one);
  }
  return measured;
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
  calibration.reference = recipe.calibrate().reference() + "/double";
  calibration.rows = recipe.calibrate().rows();
  for (const DeviceInfo& device : ListDevices()) {
    if (device.name == runtime.device()) calibration.device = device.description;
  }
}

Direction ServedDirection(const ModelSpec& spec) {
  return spec.kind == ModelKind::kFlow ? Direction::kNoiseToData : Direction::kForward;
}

absl::StatusOr<Calibration> CalibrateModel(const Recipe& recipe, DeviceRuntime& runtime,
                                           const std::shared_ptr<const Model>& model,
                                           const std::string& data_folder) {
  const Direction direction = ServedDirection(model->spec());
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, model->spec(), direction, data_folder));
  HS_ASSIGN_OR_RETURN(SolveInputs rows, source.HeldOut(recipe.calibrate().rows()));
  HS_ASSIGN_OR_RETURN(Measurer measurer,
                      MakeMeasurer(recipe, runtime, model, direction, std::move(rows)));
  Calibration calibration;
  HS_ASSIGN_OR_RETURN(calibration.plans, MeasureClassical(recipe, measurer));
  FillCalibration(recipe, *model, runtime, calibration);
  calibration.default_plan = CheapestWithin(calibration.plans, recipe.calibrate().default_error());
  return calibration;
}

}  // namespace hyperserve
