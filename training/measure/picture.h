// A picture of a calibration: error against evaluations, and against multiply-accumulates.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/model/repository/calibration.h"

namespace hyperserve {

// The gnuplot program that draws it as PNG, data included.
std::string CalibrationPlot(const std::string& title, const std::vector<PlanCalibration>& plans);

// Draws it into the file `path`, whole or not at all. Errors of RunGnuplot and WriteFileAtomically.
absl::Status DrawCalibration(const std::string& title, const std::vector<PlanCalibration>& plans,
                             const std::string& path);

}  // namespace hyperserve
