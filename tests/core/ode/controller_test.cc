#include "core/ode/controller.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace hyperserve {
namespace {

TEST(StepController, AcceptsUpToOneAndRefusesAbove) {
  EXPECT_TRUE(StepController(4).Decide(0.0).accepted);
  EXPECT_TRUE(StepController(4).Decide(1.0).accepted);
  EXPECT_FALSE(StepController(4).Decide(std::nextafter(1.0, 2.0)).accepted);
}

TEST(StepController, RefusesWhatIsNotANumberAndShortensMost) {
  for (const double norm : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const StepController::Decision decision = StepController(4).Decide(norm);
    EXPECT_FALSE(decision.accepted);
    EXPECT_EQ(decision.factor, 0.2);
  }
}

TEST(StepController, FactorsStayWithinBounds) {
  StepController controller(4);
  for (const double norm : {0.0, 1e-300, 1e-12, 1e-3, 0.5, 1.0, 1.5, 10.0, 1e300, 0.0, 1e-9}) {
    const double factor = controller.Decide(norm).factor;
    EXPECT_GE(factor, 0.2) << norm;
    EXPECT_LE(factor, norm <= 1.0 ? 10.0 : 1.0) << norm;
  }
}

TEST(StepController, DoesNotGrowRightAfterARefusal) {
  StepController controller(4);
  EXPECT_FALSE(controller.Decide(5.0).accepted);
  EXPECT_EQ(controller.Decide(1e-8).factor, 1.0);
  EXPECT_GT(controller.Decide(1e-8).factor, 1.0);
}

TEST(StepController, ARefusedStepIsShortenedEnough) {
  // An error of eps^5 that was `norm` at eps = 1 is within tolerance after one refusal.
  for (const double norm : {1.01, 2.0, 30.0, 300.0}) {
    StepController controller(4);
    const double eps = controller.Decide(norm).factor;
    EXPECT_TRUE(controller.Decide(norm * std::pow(eps, 5)).accepted) << norm;
  }
}

TEST(FirstStep, IsPositiveAndWithinTheSpan) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double state : {0.0, 1e-9, 1.0, 1e9, inf}) {
    for (const double slope : {0.0, 1e-9, 1.0, 1e9, inf, std::nan("")}) {
      for (const double curvature : {0.0, 1.0, 1e30, inf, std::nan("")}) {
        const double guess = FirstStepGuess(state, slope, 1e-3);
        EXPECT_GT(guess, 0.0);
        EXPECT_LE(guess, 1e-3);
        const double step = FirstStep(guess, slope, curvature, 4, 1e-3);
        EXPECT_GT(step, 0.0) << slope << " " << curvature;
        EXPECT_LE(step, 1e-3);
      }
    }
  }
}

TEST(FirstStep, FollowsTheSteeperNorm) {
  const double gentle = FirstStep(1.0, 1e3, 1e3, 4, 1e9);
  const double steep = FirstStep(1.0, 1e3, 1e8, 4, 1e9);
  EXPECT_NEAR(gentle / steep, 10.0, 1e-9);  // (1e8 / 1e3)^(1/5)
}

TEST(ClampStep, NeverPassesTheEndAndReachesItExactly) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(-10.0, 10.0);
  for (int i = 0; i < 20000; ++i) {
    double s = uniform(random);
    const double s1 = s + std::exp(uniform(random));
    const double eps = (s1 - s) * std::exp(uniform(random) / 5);
    if (!(s < s1)) continue;
    const NextStep next = ClampStep(s, eps, s1);
    EXPECT_GT(next.eps, 0.0);
    EXPECT_LE(s + next.eps, s1);
    EXPECT_TRUE(next.s_next == s1 || (next.s_next == s + eps && next.eps <= next.s_next - s));
    EXPECT_GE(s1 - next.s_next == 0.0 ? 1.0 : (s1 - next.s_next) / next.eps, 0.009)
        << "a sliver is left";
  }
}

TEST(SmallestStep, StillMovesTheDepth) {
  for (const double s : {0.0, 1e-300, 1.0, -17.0, 1e18}) {
    EXPECT_GT(SmallestStep(s), 0.0);
    EXPECT_NE(s + SmallestStep(s), s);
  }
}

}  // namespace
}  // namespace hyperserve
