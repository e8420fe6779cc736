#include "core/io/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace hyperserve {
namespace {

std::vector<double> Normals(uint64_t seed, uint64_t first_row, int64_t rows, int64_t dimensions) {
  std::vector<double> out(static_cast<size_t>(rows * dimensions));
  PhiloxNormals(seed, first_row, rows, dimensions, out);
  return out;
}

TEST(Philox, KnownAnswersOfItsAuthors) {
  // From the known-answer file of Random123, philox 4x32 with 10 rounds.
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxNormals, FollowTheFormulaOfTheWire) {
  const uint64_t seed = 0x123456789abcdef0, row = 0x500000003;
  const std::vector<double> normals = Normals(seed, row, 1, 6);
  for (uint32_t block = 0; block < 2; ++block) {
    const PhiloxWords words = Philox4x32({0x3, 0x5, block, 0}, {0x9abcdef0, 0x12345678});
    const auto uniform = [&](size_t i) {
      const double u = (static_cast<double>(words[i] >> 9) + 0.5) / 8388608.0;
      EXPECT_EQ(static_cast<double>(static_cast<float>(u)), u) << "not exact in float32";
      return u;
    };
    for (size_t pair = 0; pair < 2 && size_t{4} * block + 2 * pair < 6; ++pair) {
      const double radius = std::sqrt(-2.0 * std::log(uniform(2 * pair)));
      const double angle = 2.0 * std::numbers::pi * uniform(2 * pair + 1);
      const size_t even = size_t{4} * block + 2 * pair;
      EXPECT_NEAR(normals[even], radius * std::cos(angle), 1e-14);
      EXPECT_NEAR(normals[even + 1], radius * std::sin(angle), 1e-14);
    }
  }
}

TEST(PhiloxNormals, ASplitRequestGivesTheSameSamples) {
  for (const int64_t dimensions : {1, 2, 3, 4, 5, 8}) {
    const std::vector<double> whole = Normals(42, 0xfffffffe, 5, dimensions);
    std::vector<double> parts = Normals(42, 0xfffffffe, 3, dimensions);
    const std::vector<double> rest = Normals(42, 0x100000001, 2, dimensions);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole);
  }
}

TEST(PhiloxNormals, DependOnSeedAndRow) {
  EXPECT_NE(Normals(1, 0, 1, 4), Normals(2, 0, 1, 4));
  EXPECT_NE(Normals(1, 0, 1, 4), Normals(1ull << 32, 0, 1, 4));
  EXPECT_NE(Normals(1, 0, 1, 4), Normals(1, 1, 1, 4));
  EXPECT_NE(Normals(1, 0, 1, 4), Normals(1, 1ull << 32, 1, 4));
}

TEST(PhiloxNormals, AreStandardNormal) {
  const int64_t rows = 50000, dimensions = 4;
  const std::vector<double> normals = Normals(7, 0, rows, dimensions);
  const double count = static_cast<double>(rows);
  for (int64_t d = 0; d < dimensions; ++d) {
    double mean = 0, square = 0, fourth = 0, cross = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const double value = normals[static_cast<size_t>(i * dimensions + d)];
      const double other = normals[static_cast<size_t>(i * dimensions + (d + 1) % dimensions)];
      mean += value / count;
      square += value * value / count;
      fourth += value * value * value * value / count;
      cross += value * other / count;
    }
    // Five standard deviations of each estimate.
    EXPECT_NEAR(mean, 0.0, 5.0 / std::sqrt(count));
    EXPECT_NEAR(square, 1.0, 5.0 * std::sqrt(2.0 / count));
    EXPECT_NEAR(fourth, 3.0, 5.0 * std::sqrt(96.0 / count));
    EXPECT_NEAR(cross, 0.0, 5.0 / std::sqrt(count));
  }
}

TEST(PhiloxSigns, AreBit31OfTheWordsOfTheirStream) {
  const uint64_t seed = 0x123456789abcdef0, row = 0x500000003;
  std::vector<float> signs(2 * 6);
  PhiloxSigns(seed, row, 2, 6, /*probe=*/3, signs);
  for (uint32_t i = 0; i < 2; ++i) {
    for (uint32_t d = 0; d < 6; ++d) {
      const PhiloxWords words = Philox4x32({0x3 + i, 0x5, d / 4, 1 + 3}, {0x9abcdef0, 0x12345678});
      EXPECT_EQ(signs[size_t{6} * i + d], (words[d % 4] & 0x80000000u) == 0 ? 1.0f : -1.0f);
    }
  }
}

}  // namespace
}  // namespace hyperserve
