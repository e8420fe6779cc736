// Measures the plans of a recipe on held-out rows. All functions run on the calling thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "training/data/dataset.h"
#include "training/data/recipe.h"
#include "training/measure/measure.h"

namespace hyperserve {

// A Measurer of `inputs` with the reference and the batch of the recipe. `runtime` must outlive it.
// Fails as Measurer::Make does.
absl::StatusOr<Measurer> MakeMeasurer(const Recipe& recipe, DeviceRuntime& runtime,
                                      std::shared_ptr<const Model> model, Direction direction,
                                      SolveInputs inputs);

// Measures every classical plan of the recipe. A plan under which a row does not converge is left
// out, with a line on stderr. kCancelled: a signal asked to stop.
absl::StatusOr<std::vector<PlanCalibration>> MeasureClassical(const Recipe& recipe,
                                                              Measurer& measurer);

// Fills in the fields beside the plans: base digest, reference, device, rows.
void FillCalibration(const Recipe& recipe, const Model& model, const DeviceRuntime& runtime,
                     Calibration& calibration);

// Checks, before hours of training, that the data has the held-out rows that will be measured, in
// every direction. kInvalidArgument or kNotFound: it has not.
absl::Status CheckHeldOut(const Recipe& recipe, const ModelSpec& spec,
                          const std::string& data_folder);

// The direction whose plans are calibrated: noise to data for flows, forward for classifiers.
Direction ServedDirection(const ModelSpec& spec);

// Measures the classical plans on the held-out rows and chooses the default plan: the cheapest one
// within the recipe's default_error; none where there is no such plan.
absl::StatusOr<Calibration> CalibrateModel(const Recipe& recipe, DeviceRuntime& runtime,
                                           const std::shared_ptr<const Model>& model,
                                           const std::string& data_folder);

}  // namespace hyperserve
