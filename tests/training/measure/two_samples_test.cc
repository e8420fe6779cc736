#include "training/measure/two_samples.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "training/data/density.h"

namespace hyperserve {
namespace {

at::Tensor Points(const char* name, uint64_t seed, int64_t rows) {
  const std::vector<float> values = Density::Named(name)->Draw(seed, 0, rows);
  return at::tensor(values).view({rows, 2});
}

TEST(TwoSamplesTest, EnergyDistanceOfAFewPoints) {
  // E|x - y| = (1 + 3 + 1) / 3; E|x - x'| = 0; E|y - y'| = (2 + 2 + 4) 2 / 9.
  const at::Tensor x = at::tensor({0.0}, at::kDouble).view({1, 1});
  const at::Tensor y = at::tensor({1.0, 3.0, -1.0}, at::kDouble).view({3, 1});
  EXPECT_NEAR(TestEnergy(x, y, 1, 1).distance, 2 * 5.0 / 3 - 16.0 / 9, 1e-12);
}

TEST(TwoSamplesTest, EqualDensitiesAreNotToldApart) {
  int told = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const EnergyTest test =
        TestEnergy(Points("rings", seed, 400), Points("rings", seed + 100, 400), 99, seed);
    told += test.p <= 0.1 ? 1 : 0;
  }
  EXPECT_LE(told, 4);  // of ten, of which one is expected
}

TEST(TwoSamplesTest, ASmallShiftIsTold) {
  const at::Tensor x = Points("rings", 1, 1000), y = Points("rings", 2, 1000) + 0.25;
  EXPECT_EQ(TestEnergy(x, y, 99, 1).p, 0.01);
  EXPECT_EQ(TestEnergy(x, y, 99, 1).distance, TestEnergy(x, y, 99, 2).distance);
}

TEST(TwoSamplesTest, EntropyOfKnownDensities) {
  constexpr int64_t kRows = 5000;
  // Eight unit squares, and two noisy circles: log(2 pi r) + log(2 pi e .1^2) / 2 of each, with
  // shares 1/3 and 2/3.
  EXPECT_NEAR(EntropyByNeighbours(Points("checkerboard", 1, kRows)), std::log(8.0), 0.06);
  constexpr double kPi = std::numbers::pi;
  const double circles = std::log(2 * kPi * 3) + 0.5 * std::log(2 * kPi * std::numbers::e * 0.01);
  EXPECT_NEAR(EntropyByNeighbours(Points("circles", 1, kRows)), circles, 0.06);
  // Twice as wide in the plane: 2 log 2 more.
  EXPECT_NEAR(EntropyByNeighbours(2 * Points("circles", 1, kRows)) -
                  EntropyByNeighbours(Points("circles", 1, kRows)),
              2 * std::log(2.0), 1e-5);
}

}  // namespace
}  // namespace hyperserve
