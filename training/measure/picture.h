// A picture of a calibration: error over evaluations, and error over multiply-accumulates.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/model/repository/calibration.h"

namespace hyperserve {

// The gnuplot program that draws it as PNG, with the data in it. Pure.
std::string CalibrationPlot(const std::string& title, const std::vector<PlanCalibration>& plans);

// Draws it into the file `path`, completely or not at all. Fails as RunGnuplot and
// WriteFileAtomically do.
absl::Status DrawCalibration(const std::string& title, const std::vector<PlanCalibration>& plans,
                             const std::string& path);

}  // namespace hyperserve
