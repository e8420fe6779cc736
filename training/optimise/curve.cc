#include "training/optimise/curve.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace hyperserve {
namespace {

constexpr int64_t kColumns = 4;

std::string Cell(double number) {
  return std::isnan(number) ? "" : absl::StrFormat("%.17g", number);
}

}  // namespace

at::Tensor TensorOf(const std::vector<CurvePoint>& points) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(points.size()), kColumns}, at::kDouble);
  double* cell = tensor.data_ptr<double>();
  for (const CurvePoint& point : points) {
    *cell++ = point.iterations;
    *cell++ = point.rate;
    *cell++ = point.loss;
    *cell++ = point.error;
  }
  return tensor;
}

std::vector<CurvePoint> PointsOf(const at::Tensor& tensor) {
  const at::Tensor cells = tensor.contiguous();
  const double* cell = cells.const_data_ptr<double>();
  std::vector<CurvePoint> points(static_cast<size_t>(tensor.size(0)));
  for (CurvePoint& point : points) {
    point.iterations = static_cast<int>(*cell++);
    point.rate = *cell++;
    point.loss = *cell++;
    point.error = *cell++;
  }
  return points;
}

std::string CurvesText(const std::vector<Curve>& curves) {
  std::string text = "fit,iterations,rate,loss,held_out_error\n";
  for (const Curve& curve : curves) {
    for (const CurvePoint& point : curve.points) {
      absl::StrAppendFormat(&text, "%s,%d,%s,%s,%s\n", curve.fit, point.iterations,
                            Cell(point.rate), Cell(point.loss), Cell(point.error));
    }
  }
  return text;
}

}  // namespace hyperserve
