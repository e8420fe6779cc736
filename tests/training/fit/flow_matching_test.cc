#include "training/fit/flow_matching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "training/data/density.h"
#include "training/data/random.h"

namespace hyperserve {
namespace {

at::Tensor Points(const char* name, uint64_t seed, int64_t rows) {
  std::vector<float> values = Density::Named(name)->Draw(seed, 0, rows);
  return at::tensor(values).view({rows, 2});
}

TEST(FlowMatchingTest, PathsAreStraightThroughTheSpan) {
  const at::Tensor start = at::tensor({0.0f, 0.0f, 1.0f, 2.0f}).view({2, 2});
  const at::Tensor end = at::tensor({4.0f, 8.0f, 1.0f, 0.0f}).view({2, 2});
  const PathPoints points = PointsOnPaths(start, end, at::tensor({0.25f, 0.5f}), {1, 3});
  EXPECT_TRUE(at::equal(points.depth, at::tensor({1.5f, 2.0f})));
  EXPECT_TRUE(at::equal(points.state, at::tensor({1.0f, 2.0f, 1.0f, 1.0f}).view({2, 2})));
  EXPECT_TRUE(at::equal(points.velocity, at::tensor({2.0f, 4.0f, 0.0f, -1.0f}).view({2, 2})));
}

TEST(FlowMatchingTest, LossIsTheMeanSquaredDistance) {
  const at::Tensor velocity = at::tensor({3.0f, 4.0f, 0.0f, 1.0f}).view({2, 2});
  EXPECT_NEAR(VelocityLoss(at::zeros({2, 2}), velocity).item<double>(), 13.0, 1e-6);
  EXPECT_EQ(VelocityLoss(velocity, velocity).item<double>(), 0.0);
}

double MeanSquaredLength(const at::Tensor& start, const at::Tensor& end) {
  return (end - start).square().sum(1).mean().item<double>();
}

TEST(FlowMatchingTest, PairingShortensThePathsAndKeepsThePoints) {
  constexpr int64_t kRows = 500;
  const at::Tensor start = Points("gaussians", 1, kRows), end = Points("rings", 2, kRows);
  RandomStream stream(3, RandomPurpose::kBatches);
  const std::vector<int64_t> order = ShorterPairing(start, end, 200, stream);
  std::vector<int64_t> sorted = order, all(kRows);
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  const at::Tensor paired = end.index_select(0, at::tensor(order, at::kLong));
  EXPECT_LT(MeanSquaredLength(start, paired), 0.2 * MeanSquaredLength(start, end));
}

TEST(FlowMatchingTest, NoRoundsLeaveTheOrder) {
  const at::Tensor points = Points("moons", 1, 4);
  RandomStream stream(3, RandomPurpose::kBatches);
  EXPECT_EQ(ShorterPairing(points, points.flip(0), 0, stream), (std::vector<int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace hyperserve
