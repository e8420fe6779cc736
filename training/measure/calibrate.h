// The plans of a recipe, measured on held-out rows.
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

// `inputs` with the recipe's reference and batch.
absl::StatusOr<Measurer> MakeMeasurer(const Recipe& recipe, DeviceRuntime& runtime,
                                      std::shared_ptr<const Model> model, Direction direction,
                                      SolveInputs inputs);

// Every classical plan of the recipe. One that leaves a row unsolved is left out, with a note on
// stderr.
absl::StatusOr<std::vector<PlanCalibration>> MeasureClassical(const Recipe& recipe,
                                                              Measurer& measurer);

// What a calibration says beside its plans: base digest, reference, device, rows.
void FillCalibration(const Recipe& recipe, const Model& model, const DeviceRuntime& runtime,
                     Calibration& calibration);

// Whether the data holds the rows that will be wanted of it, in all directions: to be asked before
// hours of training.
absl::Status CheckHeldOut(const Recipe& recipe, const ModelSpec& spec,
                          const std::string& data_folder);

// The direction whose plans are calibrated: sampling for flows.
Direction ServedDirection(const ModelSpec& spec);

// Classical plans on the held-out rows, with the default plan chosen.
absl::StatusOr<Calibration> CalibrateModel(const Recipe& recipe, DeviceRuntime& runtime,
                                           const std::shared_ptr<const Model>& model,
                                           const std::string& data_folder);

}  // namespace hyperserve
