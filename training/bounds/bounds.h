// Gives the rows of a learned solver bounds of their error: the distance readouts in the files of a
// generation, and the bounds in its calibration. Runs on the calling thread, for minutes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "training/data/recipe.h"

namespace hyperserve {

// The calibration among the files. kFailedPrecondition: there is none.
absl::StatusOr<Calibration> CalibrationIn(const GenerationFiles& files);

// Borrows the runtime for the call.
struct BoundOptions {
  std::shared_ptr<const Model> model;
  std::string data_folder;
  at::Device device = at::kCPU;
  DeviceRuntime* runtime = nullptr;  // of the same device
  int64_t rows = 0;                  // to calibrate on; 0: as many as there are, at most 16,384
};

// Fits the distance readouts of all tables (FitDistance), on rows of the recipe that the tables
// were not fitted on; of images on those of the training files. Changes hypersolver.json and
// weights.safetensors; bounds that were there are removed. The tables stay as they are.
absl::Status FitDistances(const Recipe& recipe, const BoundOptions& options,
                          GenerationFiles& files);

// Calibrates the bounds of all plans in calibration.json whose tables have a distance readout, but
// for tier fast, which has no distances: on validation rows that chose no checkpoint. The truth is
// solved by the recipe's plan for it, in tier exact. Changes calibration.json alone.
absl::Status CalibrateBounds(const Recipe& recipe, const BoundOptions& options,
                             GenerationFiles& files);

// The last two fail with kInvalidArgument where the recipe or the files do not fit, with
// kFailedPrecondition where a row does not converge, and with kCancelled. Both drop the manifest,
// which WriteGeneration makes anew.

}  // namespace hyperserve
