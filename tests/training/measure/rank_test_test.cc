#include "training/measure/rank_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "training/data/random.h"

namespace hyperserve {
namespace {

using ::testing::ElementsAre;

TEST(RankTestTest, CountsAndProbability) {
  // Ranks 0 .. 9 in five bins of two: 4, 2, 2, 1, 1 where 2 are expected. So chi-square is
  // 4/2 + 1/2 + 1/2 = 3 with four degrees of freedom, whose tail is exp(-3/2) (1 + 3/2).
  const std::vector<int64_t> ranks = {0, 0, 1, 1, 2, 3, 4, 5, 6, 9};
  const RankTest test = TestRanks(ranks, 9, 5);
  EXPECT_THAT(test.counts, ElementsAre(4, 2, 2, 1, 1));
  EXPECT_NEAR(test.p, std::exp(-1.5) * 2.5, 1e-12);
}

TEST(RankTestTest, UniformRanksPassAndOthersDoNot) {
  RandomStream stream(1, RandomPurpose::kData);
  std::vector<int64_t> uniform, narrow;
  for (int i = 0; i < 2000; ++i) {
    uniform.push_back(stream.Below(100));
    narrow.push_back((stream.Below(100) + stream.Below(100)) / 2);
  }
  EXPECT_GT(TestRanks(uniform, 99, 20).p, 0.001);
  EXPECT_LT(TestRanks(narrow, 99, 20).p, 1e-6);
}

}  // namespace
}  // namespace hyperserve
