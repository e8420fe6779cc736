#include "core/engine/readable/slot_control.h"

#include <limits>

#include "core/engine/readable/row_numbers.h"
#include "core/ode/controller.h"

namespace hyperserve {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

at::Tensor SlotErrorNorms(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                          const at::Tensor& rtol, const at::Tensor& atol) {
  const at::Tensor largest = at::maximum(z0.abs(), z1.abs()).to(at::kDouble);
  const at::Tensor scale = at::addcmul(OverRows(atol, z0, 0), OverRows(rtol, z0, 0), largest);
  const at::Tensor scaled = error / scale;
  // Zero, or not a number: an infinite state would make any error look small.
  const at::Tensor poison = (z1 - z1) + (error - error);
  return (poison + scaled * scaled).flatten(1).mean({1}, /*keepdim=*/false, at::kDouble).sqrt();
}

SlotDecisions Decide(const at::Tensor& norms, int embedded_order, SlotControllers& controllers) {
  using namespace step_control;  // NOLINT(google-build-using-namespace): its constants
  const double exponent = 1.0 / (embedded_order + 1);
  const at::Tensor accepted = norms.le(1.0);  // false for what is not a number
  const at::Tensor shrink = at::pow(norms, -exponent).mul_(kSafety).clamp_min_(kFactorMin);
  const at::Tensor refusal = at::where(norms.lt(kInfinity), shrink, kFactorMin);
  at::Tensor growth = at::pow(norms, -kIntegral * exponent) *
                      at::pow(controllers.previous_norm, kProportional * exponent) * kSafety;
  growth = growth.clamp_(kFactorMin, kFactorMax);
  growth = at::where(controllers.refused, growth.clamp_max(1.0), growth);
  controllers.previous_norm =
      at::where(accepted, norms.clamp_min(kNormMin), controllers.previous_norm);
  controllers.refused = accepted.logical_not();
  return {.accepted = accepted, .factor = at::where(accepted, growth, refusal)};
}

at::Tensor FirstStepGuesses(const at::Tensor& state_norms, const at::Tensor& slope_norms,
                            double span) {
  using namespace step_control;  // NOLINT(google-build-using-namespace): its constants
  const at::Tensor usable = state_norms.ge(kFirstNormMin) & slope_norms.ge(kFirstNormMin) &
                            at::isfinite(state_norms) & at::isfinite(slope_norms);
  const at::Tensor guess = state_norms * kFirstShare / slope_norms;
  return at::where(usable, guess, kFirstFallback).clamp_max(span);
}

at::Tensor FirstSteps(const at::Tensor& guesses, const at::Tensor& slope_norms,
                      const at::Tensor& curvature_norms, int embedded_order, double span) {
  using namespace step_control;  // NOLINT(google-build-using-namespace): its constants
  const at::Tensor steepest = at::maximum(slope_norms, curvature_norms);
  const at::Tensor step =
      at::where(steepest.le(kFirstFlat), (guesses * kFirstFlatGrowth).clamp_min(kFirstFallback),
                at::pow(steepest.reciprocal() * kFirstShare, 1.0 / (embedded_order + 1)));
  const at::Tensor usable = at::isfinite(slope_norms) & at::isfinite(curvature_norms);
  return at::where(usable, at::minimum(guesses * kFirstGrowthMax, step).clamp_max(span), guesses);
}

SlotNextSteps ClampSteps(const at::Tensor& s, const at::Tensor& eps, double s1) {
  const at::Tensor inside = at::add(s, eps, step_control::kLastStepStretch).lt(s1);
  const at::Tensor s_next = at::where(inside, s + eps, s1);
  return {.eps = s_next - s, .s_next = s_next};
}

at::Tensor SmallestSteps(const at::Tensor& s) {
  return (s.abs() * (step_control::kSmallestStepUlps * std::numeric_limits<double>::epsilon()))
      .clamp_min(std::numeric_limits<double>::min());
}

}  // namespace hyperserve
