// Measures the plans of a recipe on held-out rows. All functions run on the calling thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/data/dataset.h"
#include "training/data/recipe.h"
#include "training/measure/measure.h"
#include "training/measure/rivals.h"

namespace hyperserve {

// A Measurer of `inputs` with the reference and the batch of the recipe. `runtime` must outlive it.
// Fails as Measurer::Make does.
absl::StatusOr<Measurer> MakeMeasurer(const Recipe& recipe, DeviceRuntime& runtime,
                                      std::shared_ptr<const Model> model, Direction direction,
                                      SolveInputs inputs);

// The same of the recipe's held-out rows. Fails as InputSource and MakeMeasurer do.
absl::StatusOr<Measurer> HeldOutMeasurer(const Recipe& recipe, DeviceRuntime& runtime,
                                         const std::shared_ptr<const Model>& model,
                                         Direction direction, const std::string& data_folder);

// Measures these plans in every tier of the recipe. A plan under which a row does not converge, or
// that the device does not solve in a tier, is left out, with a line on stderr. kCancelled: a
// signal asked to stop.
absl::StatusOr<std::vector<PlanCalibration>> MeasurePlans(
    const Recipe& recipe, const std::vector<Plan>& plans,
    const std::shared_ptr<const Hypersolver>& correction, Measurer& measurer);
// About what that will take, in seconds; for progress only.
double PlansSeconds(const Recipe& recipe, const std::vector<Plan>& plans,
                    const std::shared_ptr<const Hypersolver>& correction, const Measurer& measurer);

// Fills in the fields beside the plans: base digest, reference, device, rows.
void FillCalibration(const Recipe& recipe, const Model& model, const DeviceRuntime& runtime,
                     Calibration& calibration);

// Checks, before hours of training, that the data has the held-out rows that will be measured, in
// every direction. kInvalidArgument or kNotFound: it has not.
absl::Status CheckHeldOut(const Recipe& recipe, const ModelSpec& spec,
                          const std::string& data_folder);

// The direction whose plans are calibrated: noise to data for flows, forward for classifiers.
Direction ServedDirection(const ModelSpec& spec);

// The default plan of the recipe: the cheapest of these within its default_error and its
// default_agreement; nullopt: there is none.
std::optional<Plan> DefaultAmong(const Recipe& recipe, const std::vector<PlanCalibration>& plans);

// Measures the classical plans of the recipe, and where a cheaper rival is within its default_error
// and default_agreement, that one too. The default plan is the cheapest of these. `rivals` are
// those of the held-out rows in the ServedDirection.
absl::StatusOr<Calibration> CalibrateModel(const Recipe& recipe, const DeviceRuntime& runtime,
                                           const Model& model, Rivals& rivals);

// About what HeldOutMeasurer, CalibrateModel and Quality will take once the model is trained, in
// seconds, for progress only; within a factor of four. It measures a batch of the untrained one.
// Fails as HeldOutMeasurer does.
absl::StatusOr<double> CalibrationSeconds(const Recipe& recipe, DeviceRuntime& runtime,
                                          const std::shared_ptr<const Model>& untrained,
                                          const std::string& data_folder);

}  // namespace hyperserve
