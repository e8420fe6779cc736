#include "core/ode/controller.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hyperserve {

using namespace step_control;  // NOLINT(google-build-using-namespace): its constants

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
  const bool usable = state_norm >= kFirstNormMin && slope_norm >= kFirstNormMin &&
                      std::isfinite(state_norm) && std::isfinite(slope_norm);
  return std::min(usable ? kFirstShare * state_norm / slope_norm : kFirstFallback, span);
}

double FirstStep(double guess, double slope_norm, double curvature_norm, int embedded_order,
                 double span) {
  if (!std::isfinite(slope_norm) || !std::isfinite(curvature_norm)) return guess;
  const double steepest = std::max(slope_norm, curvature_norm);
  const double step = steepest <= kFirstFlat
                          ? std::max(kFirstFallback, guess * kFirstFlatGrowth)
                          : std::pow(kFirstShare / steepest, 1.0 / (embedded_order + 1));
  return std::min({kFirstGrowthMax * guess, step, span});
}

double FitStep(double s, double eps, double s1) {
  double fitted = std::min(eps, s1 - s);
  while (s + fitted > s1) fitted = std::nextafter(fitted, 0.0);
  return fitted;
}

NextStep StepTo(double s, double s_next, double s1) {
  return {.eps = FitStep(s, s_next - s, s1), .s_next = s_next};
}

NextStep ClampStep(double s, double eps, double s1) {
  return StepTo(s, s + kLastStepStretch * eps < s1 ? s + eps : s1, s1);
}

double SmallestStep(double s) {
  return std::max(kSmallestStepUlps * std::numeric_limits<double>::epsilon() * std::abs(s),
                  std::numeric_limits<double>::min());
}

}  // namespace hyperserve
