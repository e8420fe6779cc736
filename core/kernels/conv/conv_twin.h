// The readable twin of the fused convolution kernel (conv.h): double, one image after the other.
// Pure; any thread. For tests: slow.
#pragma once

#include <span>
#include <vector>

#include "core/kernels/conv/conv_model.h"

namespace hyperserve::kernels {

// f(s, z) of one image.
std::vector<double> TwinConvField(const ConvModel& model, double s, std::span<const double> z);

// z(s1) of one image. Preconditions: the layers fit each other; hypersolved only with a correction.
std::vector<double> TwinConvSolve(const ConvModel& model, const ConvPlan& plan,
                                  std::span<const double> z0);

// The end of an adaptive solve.
struct TwinConvEnd {
  std::vector<double> z;
  int evaluations = 0;  // of f
};
// The same under error control. Precondition: the model has no table, and the solve ends.
TwinConvEnd TwinConvSolve(const ConvModel& model, const ConvAdaptivePlan& plan,
                          std::span<const double> z0);

}  // namespace hyperserve::kernels
