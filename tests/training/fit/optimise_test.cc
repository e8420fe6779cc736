#include "training/fit/optimise.h"

#include <gtest/gtest.h>

#include "training/data/recipe.pb.h"

namespace hyperserve {
namespace {

training::Optimiser MakeOptimiser(double rate, double final_rate, int iterations, int warm_up) {
  training::Optimiser optimiser;
  optimiser.set_rate(rate);
  optimiser.set_final_rate(final_rate);
  optimiser.set_iterations(iterations);
  optimiser.set_warm_up(warm_up);
  return optimiser;
}

TEST(LearningRateTest, RisesToThePeakThenFallsToTheLast) {
  const auto rate = [optimiser = MakeOptimiser(1.0, 0.1, 101, 20)](int iteration) {
    return LearningRate(optimiser, iteration);
  };
  EXPECT_NEAR(rate(0), 1.0 / 21, 1e-12);
  EXPECT_NEAR(rate(19), 20.0 / 21, 1e-12);
  EXPECT_NEAR(rate(20), 1.0, 1e-12);
  EXPECT_NEAR(rate(60), 0.55, 1e-12);  // half way down
  EXPECT_NEAR(rate(100), 0.1, 1e-12);
  for (int i = 21; i < 101; ++i) EXPECT_LT(rate(i), rate(i - 1));
}

TEST(LearningRateTest, OneIterationRunsAtThePeak) {
  EXPECT_DOUBLE_EQ(LearningRate(MakeOptimiser(0.5, 0.0, 1, 0), 0), 0.5);
}

}  // namespace
}  // namespace hyperserve
