// How the rate of a fit falls, by iterations and by a limit of time.
#include "training/optimise/schedule.h"

#include <gtest/gtest.h>

#include <functional>

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

TEST(FitTimeTest, TheScheduleIsAsFarOnAsTheTimeWhereThatIsFurther) {
  training::Optimiser optimiser = MakeOptimiser(1.0, 0.1, 101, 20);
  optimiser.set_seconds(50);
  double now = 1000;
  const std::function<double()> clock = [&now] { return now; };
  FitTime time(optimiser, clock);
  time.Begin();
  EXPECT_EQ(time.PlaceInSchedule(7), 7);
  now = 1025;
  EXPECT_EQ(time.PlaceInSchedule(7), 50) << "half of the time";
  EXPECT_EQ(time.PlaceInSchedule(80), 80);
  EXPECT_FALSE(time.Over());
  now = 1050;
  EXPECT_EQ(time.PlaceInSchedule(7), 100) << "the last iteration's rate";
  EXPECT_TRUE(time.Over());
  time.Begin(30);  // goes on with 20 seconds left
  EXPECT_FALSE(time.Over());
  now = 1070;
  EXPECT_TRUE(time.Over());
}

TEST(FitTimeTest, WithoutALimitTheIterationsAloneCount) {
  const training::Optimiser optimiser = MakeOptimiser(1.0, 0.1, 101, 20);
  const std::function<double()> clock = [] { return 1e9; };
  const FitTime time(optimiser, clock);
  EXPECT_FALSE(time.Over());
  EXPECT_EQ(time.PlaceInSchedule(7), 7);
}

}  // namespace
}  // namespace hyperserve
