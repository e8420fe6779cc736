// A scatter picture of two-dimensional points, drawn by gnuplot.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/io/tensor.h"

namespace hyperserve {

// Writes `points` ([rows, 2]) to `path` as PNG under `title`. kFailedPrecondition where gnuplot is
// not installed or the points are not two-dimensional; kInternal with gnuplot's words on
// stderr where it fails; else what WriteOutFile says.
absl::Status WriteScatterPng(const std::string& path, const std::string& title,
                             const HostTensor& points);

}  // namespace hyperserve
