// Gathers what a report shows of a model: its files, and a few solves on held-out rows. Runs on the
// calling thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/io/safetensors.h"
#include "core/model/spec/spec.h"
#include "training/data/recipe.h"
#include "training/report/page.h"

namespace hyperserve {

// Reads <model_folder>, its calibration and the served generation of each method, else its newest.
// A generation of another base is left out, with a line on stderr. Solves one batch of the recipe's
// held-out rows under the learned plans and their rivals. Blocks for seconds to minutes; writes no
// file. kFailedPrecondition: calibration.json was measured on another base. kCancelled: a signal
// asked to stop. Also fails as reading, HeldOutMeasurer and RunSolve do.
absl::StatusOr<ReportContent> GatherReport(const Recipe& recipe, DeviceRuntime& runtime,
                                           const std::string& model_folder,
                                           const std::string& data_folder,
                                           FieldCode code = FieldCode::kRefused);

// The rows of a heat map: states x_1 to x_n by rows, x_0 and slopes by columns. `tensors` are those
// of a weights file that ExpectedCoefficients names; kNotFound: one is missing.
absl::StatusOr<SolverTableRows> TableRows(const TableSpec& table, const SafetensorsFile& tensors);

}  // namespace hyperserve
