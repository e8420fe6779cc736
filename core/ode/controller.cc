#include "core/ode/controller.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hyperserve {
namespace {

// Aim below the tolerance, so that few steps are refused.
constexpr double kSafety = 0.9;
// Bounds of one change of the step size.
constexpr double kFactorMin = 0.2;
constexpr double kFactorMax = 10.0;
// PI control: the weight of the previous step's norm, and of this one's.
constexpr double kProportional = 0.2;
constexpr double kIntegral = 1.0 - 0.75 * kProportional;
// Lower bound of the previous norm, which would else dominate the factor.
constexpr double kNormMin = 1e-4;
// A step may be this much longer if it is the last, so that no tiny step follows.
constexpr double kLastStepStretch = 1.01;
// In units of the last place of s.
constexpr double kSmallestStepUlps = 10.0;

}  // namespace

StepController::Decision StepController::Decide(double error_norm) {
  const double exponent = 1.0 / estimate_order_;
  if (!(error_norm <= 1.0)) {  // also where it is not a number
    refused_ = true;
    const double factor = kSafety * std::pow(error_norm, -exponent);
    return {.accepted = false,
            .factor = std::isfinite(error_norm) ? std::max(factor, kFactorMin) : kFactorMin};
  }
  double factor = kSafety * std::pow(error_norm, -kIntegral * exponent) *
                  std::pow(previous_norm_, kProportional * exponent);
  factor = std::clamp(factor, kFactorMin, refused_ ? 1.0 : kFactorMax);
  previous_norm_ = std::max(error_norm, kNormMin);
  refused_ = false;
  return {.accepted = true, .factor = factor};
}

double FirstStepGuess(double state_norm, double slope_norm, double span) {
  constexpr double kTiny = 1e-5, kFallback = 1e-6;
  const bool usable = state_norm >= kTiny && slope_norm >= kTiny && std::isfinite(state_norm) &&
                      std::isfinite(slope_norm);
  return std::min(usable ? 0.01 * state_norm / slope_norm : kFallback, span);
}

double FirstStep(double guess, double slope_norm, double curvature_norm, int embedded_order,
                 double span) {
  constexpr double kFlat = 1e-15, kAim = 0.01;
  if (!std::isfinite(slope_norm) || !std::isfinite(curvature_norm)) return guess;
  const double steepest = std::max(slope_norm, curvature_norm);
  const double step = steepest <= kFlat ? std::max(1e-6, guess * 1e-3)
                                        : std::pow(kAim / steepest, 1.0 / (embedded_order + 1));
  return std::min({100.0 * guess, step, span});
}

double FitStep(double s, double eps, double s1) {
  double fitted = std::min(eps, s1 - s);
  while (s + fitted > s1) fitted = std::nextafter(fitted, 0.0);
  return fitted;
}

NextStep ClampStep(double s, double eps, double s1) {
  if (s + kLastStepStretch * eps < s1) return {.eps = eps, .s_next = s + eps};
  return {.eps = FitStep(s, s1 - s, s1), .s_next = s1};
}

double SmallestStep(double s) {
  return std::max(kSmallestStepUlps * std::numeric_limits<double>::epsilon() * std::abs(s),
                  std::numeric_limits<double>::min());
}

}  // namespace hyperserve
