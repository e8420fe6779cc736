#include "training/data/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace hyperserve {
namespace {

TEST(RandomTest, StreamsRepeatAndDiffer) {
  RandomStream a(5, RandomPurpose::kWeights), b(5, RandomPurpose::kWeights);
  RandomStream other_seed(6, RandomPurpose::kWeights), other(5, RandomPurpose::kBatches);
  std::set<uint32_t> words;
  for (int i = 0; i < 100; ++i) {
    const uint32_t word = a.Word();
    EXPECT_EQ(word, b.Word());
    words.insert({word, other_seed.Word(), other.Word()});
  }
  EXPECT_GE(words.size(), 299u);  // no stream repeats another
}

TEST(RandomTest, AStreamGoesOnWhereItWas) {
  for (int words = 0; words < 10; ++words) {
    RandomStream stream(5, RandomPurpose::kBatches), other(5, RandomPurpose::kBatches);
    for (int i = 0; i < words; ++i) stream.Word();
    ASSERT_EQ(stream.drawn(), static_cast<uint64_t>(words));
    other.Word();  // it may have been anywhere
    other.Seek(stream.drawn());
    EXPECT_EQ(other.drawn(), stream.drawn());
    for (int i = 0; i < 9; ++i) EXPECT_EQ(other.Word(), stream.Word()) << words << " " << i;
  }
}

TEST(RandomTest, BelowIsUniform) {
  RandomStream stream(1, RandomPurpose::kBatches);
  std::vector<int> counts(7, 0);
  for (int i = 0; i < 70000; ++i) counts.at(stream.Below(7)) += 1;
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(RandomTest, NormalPairsHaveTheMomentsOfNormals) {
  RandomStream stream(2, RandomPurpose::kData);
  double sum = 0, squares = 0, product = 0, fourth = 0;
  constexpr int kPairs = 50000;
  for (int i = 0; i < kPairs; ++i) {
    const double u = stream.Uniform(), v = stream.Uniform();
    const auto pair = NormalPair(u, v);
    sum += pair[0] + pair[1];
    squares += pair[0] * pair[0] + pair[1] * pair[1];
    fourth += std::pow(pair[0], 4);
    product += pair[0] * pair[1];
  }
  EXPECT_NEAR(sum / (2 * kPairs), 0, 0.02);
  EXPECT_NEAR(squares / (2 * kPairs), 1, 0.03);
  EXPECT_NEAR(fourth / kPairs, 3, 0.25);
  EXPECT_NEAR(product / kPairs, 0, 0.03);
}

TEST(RandomTest, UniformsNeverReachTheEnds) {
  EXPECT_GT(UnitUniform(0), 0.0);
  EXPECT_LT(UnitUniform(0xffffffffu), 1.0);
}

}  // namespace
}  // namespace hyperserve
