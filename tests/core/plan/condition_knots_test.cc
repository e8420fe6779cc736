#include "core/plan/condition_knots.h"

#include <gtest/gtest.h>

#include <vector>

namespace hyperserve {
namespace {

const std::vector<double> kDepths = {-1, 0, 0.5, 2}, kValues = {3, -1, 4, 0.25};

double Value(Interpolation interpolation, double depth) {
  const KnotWeights at = WeightsAt({.depths = kDepths, .interpolation = interpolation}, depth);
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) {
    const auto knot = static_cast<size_t>(at.first) + i;
    if (at.weights[i] != 0) sum += at.weights[i] * kValues.at(knot);
  }
  return sum;
}

double Slope(Interpolation interpolation, double depth) {
  constexpr double kStep = 1e-6;
  return (Value(interpolation, depth + kStep) - Value(interpolation, depth - kStep)) / (2 * kStep);
}

TEST(ConditionKnots, ValuesAtTheKnotsAreThoseGiven) {
  for (const Interpolation one : {Interpolation::kLinear, Interpolation::kCubicHermite}) {
    for (size_t i = 0; i < kDepths.size(); ++i) EXPECT_EQ(Value(one, kDepths[i]), kValues[i]);
    EXPECT_EQ(Value(one, -5), kValues.front());
    EXPECT_EQ(Value(one, 5), kValues.back());
  }
}

TEST(ConditionKnots, LinearGoesStraight) {
  EXPECT_DOUBLE_EQ(Value(Interpolation::kLinear, -0.75), 2);
  EXPECT_DOUBLE_EQ(Value(Interpolation::kLinear, 0.1), 0);
  EXPECT_DOUBLE_EQ(Value(Interpolation::kLinear, 1.25), 2.125);
}

TEST(ConditionKnots, HermiteHasTheSlopeFromTheKnotBefore) {
  const auto near = [](double depth, double slope) {
    EXPECT_NEAR(Slope(Interpolation::kCubicHermite, depth - 2e-6), slope, 1e-3) << depth;
    EXPECT_NEAR(Slope(Interpolation::kCubicHermite, depth + 2e-6), slope, 1e-3) << depth;
  };
  near(0, -4);
  near(0.5, 10);
  EXPECT_NEAR(Slope(Interpolation::kCubicHermite, -1 + 2e-6), -4, 1e-3);  // to the second knot
  EXPECT_NEAR(Slope(Interpolation::kCubicHermite, 2 - 2e-6), -2.5, 1e-3);
  // The cubic half way: the mean of the values, and an eighth of the length times both slopes'
  // difference.
  EXPECT_NEAR(Value(Interpolation::kCubicHermite, 0.25), 1.5 + 0.5 / 8 * (-4 - 10), 1e-12);
}

TEST(ConditionKnots, TwoKnotsAreEnough) {
  for (const Interpolation one : {Interpolation::kLinear, Interpolation::kCubicHermite}) {
    const KnotWeights at = WeightsAt({.depths = {0, 4}, .interpolation = one}, 1);
    EXPECT_DOUBLE_EQ(at.weights[0], 0.75);
    EXPECT_DOUBLE_EQ(at.weights[1], 0.25);
  }
}

}  // namespace
}  // namespace hyperserve
