// A picture of a calibration: error against evaluations, and against multiply-accumulates.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/model/repository.h"

namespace hyperserve {

// The gnuplot program that draws it, data included; writes `png`.
std::string CalibrationPlot(const std::string& title, const std::vector<PlanCalibration>& plans,
                            const std::string& png);

// Runs it. kUnavailable where there is no gnuplot.
absl::Status DrawCalibration(const std::string& title, const std::vector<PlanCalibration>& plans,
                             const std::string& png);

}  // namespace hyperserve
