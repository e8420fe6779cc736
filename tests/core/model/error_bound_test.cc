#include "core/model/repository/error_bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/model/repository/calibration.h"

namespace hyperserve {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> Ascending(int count) {
  std::vector<double> values;
  for (int i = 1; i <= count; ++i) values.push_back(i);
  return values;
}

TEST(ErrorBoundTest, TheRankHasTheCorrectionForFewRows) {
  const auto factor = [](int rows) {
    const auto bound = CalibrateBound(Ascending(rows), std::vector<double>(rows, 1.0));
    return bound ? bound->factor : 0.0;
  };
  EXPECT_EQ(factor(18), 0);    // ceil(.95 * 19) = 19 of 18
  EXPECT_EQ(factor(19), 19);   // ceil(.95 * 20) = 19
  EXPECT_EQ(factor(99), 95);   // ceil(.95 * 100)
  EXPECT_EQ(factor(100), 96);  // ceil(.95 * 101)
}

TEST(ErrorBoundTest, RowsWithoutAFiniteRatioStandAtTheEnd) {
  std::vector<double> errors = Ascending(100), distances(100, 1.0);
  distances[0] = 0.0;     // an error and no distance
  errors[1] = kInfinity;  // a row that did not converge
  distances[2] = std::nan("");
  errors[3] = distances[3] = 0.0;  // an exact row has the ratio 0
  EXPECT_EQ(CalibrateBound(errors, distances)->factor, 99);
  for (size_t row = 0; row < 6; ++row) {
    errors[row] = 1.0;
    distances[row] = 0.0;
  }
  EXPECT_FALSE(CalibrateBound(errors, distances));
}

// Errors of unlike spread: a bound of 95 % that knows the scale of each row.
TEST(ErrorBoundTest, NineteenOfTwentyFurtherRowsKeepIt) {
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> scales(0.0, 2.0), ratios(0.0, 0.3);
  const auto draw = [&](int rows) {
    std::pair<std::vector<double>, std::vector<double>> drawn;
    for (int row = 0; row < rows; ++row) {
      drawn.second.push_back(scales(random));
      drawn.first.push_back(drawn.second.back() * ratios(random));
    }
    return drawn;
  };
  double kept = 0, rows = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const auto [errors, distances] = draw(99);
    const double factor = CalibrateBound(errors, distances)->factor;
    const auto [further, at] = draw(500);
    for (size_t row = 0; row < further.size(); ++row) kept += further[row] <= factor * at[row];
    rows += static_cast<double>(further.size());
  }
  EXPECT_NEAR(kept / rows, 0.95, 0.006);
}

TEST(ErrorBoundTest, TheShareOfRowsFollowsTheQuantiles) {
  const ErrorBound bound = *CalibrateBound(Ascending(401), Ascending(401));
  EXPECT_EQ(bound.factor, 1.0);
  EXPECT_EQ(bound.rows, 401);
  EXPECT_EQ(bound.distances.front(), 1);
  EXPECT_EQ(bound.distances.back(), 401);
  EXPECT_EQ(ShareWithin(bound, 0.5), 0.0);
  EXPECT_EQ(ShareWithin(bound, 401), 1.0);
  EXPECT_NEAR(ShareWithin(bound, 101), 0.25, 1e-12);
  EXPECT_NEAR(ShareWithin(bound, 306), 0.7625, 1e-12);  // between two quantiles
}

}  // namespace
}  // namespace hyperserve
