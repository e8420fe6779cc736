// The course of a fit: its loss and its held-out error by iteration. Pure; any thread.
#pragma once

#include <ATen/ATen.h>

#include <limits>
#include <string>
#include <vector>

namespace hyperserve {

// Compare with isnan.
inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

// One line of the course. Before the first iteration there is an error at most, and no rate and no
// loss.
struct CurvePoint {
  int iterations = 0;                               // that were done
  double rate = kNotMeasured, loss = kNotMeasured;  // of the last of them
  double error = kNotMeasured;                      // on the held-out rows, after it
};

// Of one fit of a run.
struct Curve {
  std::string fit;
  std::vector<CurvePoint> points;
};

// The points as [points, 4] in double, and back. Precondition of the second: that shape.
at::Tensor TensorOf(const std::vector<CurvePoint>& points);
std::vector<CurvePoint> PointsOf(const at::Tensor& tensor);

// "fit,iterations,rate,loss,held_out_error" and a line for each point; what was not measured is
// empty. Equal numbers give equal text, and other numbers other text.
std::string CurvesText(const std::vector<Curve>& curves);

}  // namespace hyperserve
