// Step size control of one row in float: the device's twin of core/ode/controller.h, which says
// what the numbers are and where they come from. flow_control_test compares the two. Pure
// functions, for host and device; nothing here fails.
#pragma once

#include <cfloat>
#include <cmath>

#include "core/ode/controller.h"

#ifdef __CUDACC__
#define HYPERSERVE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define HYPERSERVE_HOST_DEVICE inline
#endif

namespace hyperserve::kernels {

// What a StepController remembers.
struct FlowController {
  float previous_norm = static_cast<float>(step_control::kNormMin);
  bool refused = false;
};

// x^exponent for x > 0.
HYPERSERVE_HOST_DEVICE float FlowPower(float x, float exponent) {
  return exp2f(exponent * log2f(x));
}

// As StepController::Decision.
struct FlowDecision {
  bool accepted;
  float factor;
};

// StepController::Decide.
HYPERSERVE_HOST_DEVICE FlowDecision Decide(float norm, int embedded_order, FlowController& row) {
  constexpr float kSafety = static_cast<float>(step_control::kSafety);
  constexpr float kFactorMin = static_cast<float>(step_control::kFactorMin);
  constexpr float kFactorMax = static_cast<float>(step_control::kFactorMax);
  const float exponent = 1.0f / static_cast<float>(embedded_order + 1);
  if (!(norm <= 1.0f)) {  // also where it is not a number
    row.refused = true;
    const float factor = norm <= FLT_MAX ? kSafety * FlowPower(norm, -exponent) : kFactorMin;
    return {false, fmaxf(factor, kFactorMin)};
  }
  const float least = fmaxf(norm, FLT_MIN);
  float factor =
      kSafety * FlowPower(least, static_cast<float>(-step_control::kIntegral) * exponent) *
      FlowPower(row.previous_norm, static_cast<float>(step_control::kProportional) * exponent);
  factor = fminf(fmaxf(factor, kFactorMin), row.refused ? 1.0f : kFactorMax);
  row.previous_norm = fmaxf(norm, static_cast<float>(step_control::kNormMin));
  row.refused = false;
  return {true, factor};
}

// FirstStepGuess and FirstStep of finite norms; those that are not finite give the guess.
HYPERSERVE_HOST_DEVICE float FlowFirstGuess(float state_norm, float slope_norm, float span) {
  constexpr float kNormMin = static_cast<float>(step_control::kFirstNormMin);
  const bool usable = state_norm >= kNormMin && slope_norm >= kNormMin && state_norm <= FLT_MAX &&
                      slope_norm <= FLT_MAX;
  const float guess = usable
                          ? static_cast<float>(step_control::kFirstShare) * state_norm / slope_norm
                          : static_cast<float>(step_control::kFirstFallback);
  return fminf(guess, span);
}

HYPERSERVE_HOST_DEVICE float FlowFirstStep(float guess, float slope_norm, float curvature_norm,
                                           int embedded_order, float span) {
  if (!(slope_norm <= FLT_MAX && curvature_norm <= FLT_MAX)) return guess;
  const float steepest = fmaxf(slope_norm, curvature_norm);
  const float step = steepest <= static_cast<float>(step_control::kFirstFlat)
                         ? fmaxf(static_cast<float>(step_control::kFirstFallback),
                                 guess * static_cast<float>(step_control::kFirstFlatGrowth))
                         : FlowPower(static_cast<float>(step_control::kFirstShare) / steepest,
                                     1.0f / static_cast<float>(embedded_order + 1));
  return fminf(fminf(static_cast<float>(step_control::kFirstGrowthMax) * guess, step), span);
}

// ClampStep: the depth after the step; s1 exactly for the last.
HYPERSERVE_HOST_DEVICE float FlowNextDepth(float s, float eps, float s1) {
  constexpr float kStretch = static_cast<float>(step_control::kLastStepStretch);
  return s + kStretch * eps < s1 ? s + eps : s1;
}

// SmallestStep, in units of the last place of a float.
HYPERSERVE_HOST_DEVICE float FlowSmallestStep(float s) {
  constexpr float kUlps = static_cast<float>(step_control::kSmallestStepUlps) * FLT_EPSILON;
  return fmaxf(kUlps * fabsf(s), FLT_MIN);
}

}  // namespace hyperserve::kernels
