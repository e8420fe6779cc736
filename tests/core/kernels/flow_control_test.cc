// Step size control in float against core/ode/controller.h, whose twin it is.
#include "core/kernels/adaptive/flow_control.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/ode/controller.h"

namespace hyperserve {
namespace {

using kernels::FlowController;
using kernels::FlowDecision;

constexpr double kClose = 3e-6;  // roundings of float, through two powers

void ExpectClose(float found, double expected) {
  EXPECT_NEAR(found, expected, kClose * std::fabs(expected));
}

double Wide(std::mt19937& random) {
  return std::exp(std::uniform_real_distribution<double>(-16.0, 5.0)(random));
}

// Sequences of norms of all sizes, so that refusals and what follows them are met.
TEST(FlowControl, DecidesAsTheController) {
  std::mt19937 random(1);
  for (const int order : {2, 4}) {
    StepController expected(order);
    FlowController found;
    for (int step = 0; step < 2000; ++step) {
      const float norm = static_cast<float>(Wide(random));
      const StepController::Decision wanted = expected.Decide(norm);
      const FlowDecision decision = kernels::Decide(norm, order, found);
      EXPECT_EQ(decision.accepted, wanted.accepted) << norm;
      ExpectClose(decision.factor, wanted.factor);
    }
  }
}

TEST(FlowControl, NormsThatAreNoNumbers) {
  for (const float norm : {std::numeric_limits<float>::quiet_NaN(),
                           std::numeric_limits<float>::infinity(), 0.0f, 1.0f}) {
    StepController expected(4);
    FlowController found;
    for (int step = 0; step < 3; ++step) {
      const StepController::Decision wanted = expected.Decide(norm);
      const FlowDecision decision = kernels::Decide(norm, 4, found);
      EXPECT_EQ(decision.accepted, wanted.accepted) << norm;
      ExpectClose(decision.factor, wanted.factor);
    }
  }
}

TEST(FlowControl, FirstStepsAreThoseOfTheController) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    const float state = static_cast<float>(Wide(random)), slope = static_cast<float>(Wide(random));
    const float curvature = i % 50 == 0 ? 0.0f : static_cast<float>(Wide(random));
    const float guess = kernels::FlowFirstGuess(state, slope, 2.0f);
    ExpectClose(guess, FirstStepGuess(state, slope, 2.0));
    ExpectClose(kernels::FlowFirstStep(guess, slope, curvature, 4, 2.0f),
                FirstStep(guess, slope, curvature, 4, 2.0));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  ExpectClose(kernels::FlowFirstGuess(1.0f, infinity, 2.0f), FirstStepGuess(1.0, infinity, 2.0));
  ExpectClose(kernels::FlowFirstStep(0.1f, 0.0f, 0.0f, 4, 2.0f), FirstStep(0.1f, 0.0, 0.0, 4, 2.0));
  EXPECT_EQ(kernels::FlowFirstStep(0.1f, infinity, 1.0f, 4, 2.0f), 0.1f);
}

// Steps end at s1 exactly, and none is so short that the depth stands still.
TEST(FlowControl, DepthsReachTheEnd) {
  for (const float eps : {0.01f, 0.3f, 1.0f, 5.0f}) {
    const float s0 = -1.0f, s1 = 3.0f;
    int steps = 0;
    for (float s = s0; s != s1; ++steps) {
      const NextStep wanted = ClampStep(s, eps, s1);
      const float next = kernels::FlowNextDepth(s, eps, s1);
      EXPECT_NEAR(next, wanted.s_next, 1e-6);
      ASSERT_GT(next, s);
      s = next;
    }
    EXPECT_NEAR(steps, std::ceil((s1 - s0) / eps - 0.01), 1.0);
  }
  EXPECT_LT(1.0f, 1.0f + kernels::FlowSmallestStep(1.0f));
}

}  // namespace
}  // namespace hyperserve
