#include "training/data/density.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

TEST(DensityTest, UnknownNameNamesTheKnownOnes) {
  const auto density = Density::Named("spiral");
  ASSERT_EQ(density.status().code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& name : Density::Names()) {
    EXPECT_THAT(std::string(density.status().message()), HasSubstr(name));
  }
}

TEST(DensityTest, RowsAreAFunctionOfSeedAndRow) {
  for (const std::string& name : Density::Names()) {
    const Density density = Density::Named(name).value();
    const std::vector<float> all = density.Draw(7, 0, 64);
    const std::vector<float> tail = density.Draw(7, 48, 16);
    const int64_t width = 2 + density.condition_features();
    ASSERT_EQ(all.size(), static_cast<size_t>(64 * width));
    EXPECT_EQ(std::vector<float>(all.begin() + 48 * width, all.end()), tail) << name;
    EXPECT_NE(density.Draw(8, 0, 64), all) << name;
  }
}

TEST(DensityTest, CentredAndAboutAsWideAsTheNoiseTheyMapTo) {
  constexpr int kRows = 20000;
  for (const std::string& name : Density::Names()) {
    const Density density = Density::Named(name).value();
    const std::vector<float> points = density.Draw(1, 0, kRows);
    const size_t width = 2 + density.condition_features();
    for (int axis = 0; axis < 2; ++axis) {
      double sum = 0, squares = 0;
      for (int row = 0; row < kRows; ++row) {
        const double value = points[width * row + axis];
        ASSERT_TRUE(std::isfinite(value));
        sum += value;
        squares += value * value;
      }
      const double deviation = std::sqrt(squares / kRows);
      // Five standard errors.
      EXPECT_NEAR(sum / kRows, 0.0, 5 * deviation / std::sqrt(kRows)) << name;
      EXPECT_GT(deviation, 0.5) << name;
      EXPECT_LT(deviation, 2.5) << name;
    }
  }
}

// Of the parameter (a, b) and the observation (x, y), x + |a + b| / sqrt(2) - .25 and
// y - (b - a) / sqrt(2) are a point of a half moon of radius .1.
TEST(DensityTest, ObservationsOfTwoMoonsLieOnAHalfMoonShiftedByTheParameter) {
  constexpr int kRows = 20000;
  const Density density = Density::Named("two_moons").value();
  ASSERT_EQ(density.condition_features(), 2);
  const std::vector<float> rows = density.Draw(3, 0, kRows);
  double radii = 0, upper = 0;
  for (size_t i = 0; i < 4 * kRows; i += 4) {
    const double x = rows[i + 2] + std::abs(rows[i] + rows[i + 1]) / std::sqrt(2.0) - 0.25;
    const double y = rows[i + 3] - (rows[i + 1] - rows[i]) / std::sqrt(2.0);
    EXPECT_GT(x, -1e-5);
    EXPECT_NEAR(std::hypot(x, y), 0.1, 0.06);
    radii += std::hypot(x, y);
    upper += y > 0 ? 1 : 0;
  }
  EXPECT_NEAR(radii / kRows, 0.1, 5 * 0.01 / std::sqrt(kRows));
  EXPECT_NEAR(upper / kRows, 0.5, 0.02);
}

TEST(DensityTest, RingsLieOnThreeRadiiByLength) {
  constexpr int kRows = 30000;
  const std::vector<float> points = Density::Named("rings")->Draw(3, 0, kRows);
  int inner = 0, outer = 0;
  for (size_t row = 0; row < kRows; ++row) {
    const double radius = std::hypot(points[2 * row], points[2 * row + 1]);
    inner += radius < 1.2 ? 1 : 0;
    outer += radius > 2.0 ? 1 : 0;
  }
  EXPECT_NEAR(inner / static_cast<double>(kRows), 1.0 / 6, 0.01);
  EXPECT_NEAR(outer / static_cast<double>(kRows), 1.0 / 2, 0.015);
}

TEST(DensityTest, CirclesLieOnTwoRadiiByLength) {
  constexpr int kRows = 30000;
  const std::vector<float> points = Density::Named("circles")->Draw(3, 0, kRows);
  int inner = 0, between = 0;
  for (size_t row = 0; row < kRows; ++row) {
    const double radius = std::hypot(points[2 * row], points[2 * row + 1]);
    inner += radius < 1.5 ? 1 : 0;
    between += std::abs(radius - 1.5) < 0.1 ? 1 : 0;
  }
  EXPECT_NEAR(inner / static_cast<double>(kRows), 1.0 / 3, 0.015);
  EXPECT_LT(between, 10);  // four deviations from either circle
}

TEST(DensityTest, CheckerboardFillsOneColourOnly) {
  const std::vector<float> points = Density::Named("checkerboard")->Draw(3, 0, 4000);
  std::vector<int> seen(16, 0);
  for (size_t i = 0; i < points.size(); i += 2) {
    const int column = static_cast<int>(std::floor(points[i] + 2));
    const int row = static_cast<int>(std::floor(points[i + 1] + 2));
    ASSERT_GE(column, 0);
    ASSERT_LT(column, 4);
    ASSERT_EQ((row + column) % 2, 0);
    seen[4 * row + column] += 1;
  }
  for (int square = 0; square < 16; ++square) {
    const double expected = (square / 4 + square % 4) % 2 == 0 ? 500 : 0;
    EXPECT_NEAR(seen[square], expected, 120) << "square " << square;
  }
}

}  // namespace
}  // namespace hyperserve
