#include "server/calls/probabilities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace hyperserve {
namespace {

using testing::ElementsAre;

TEST(Softmax, KnownValues) {
  const std::vector<double> p =
      Softmax(std::vector<double>{std::log(1.0), std::log(2.0), std::log(5.0)});
  EXPECT_NEAR(p[0], 0.125, 1e-15);
  EXPECT_NEAR(p[1], 0.25, 1e-15);
  EXPECT_NEAR(p[2], 0.625, 1e-15);
}

TEST(Softmax, LargeLogitsDoNotOverflow) {
  const std::vector<double> p = Softmax(std::vector<double>{1e300, 0, 1e300});
  EXPECT_THAT(p, ElementsAre(0.5, 0, 0.5));
}

TEST(TopK, LargestFirstAndTiesByIndex) {
  const std::vector<double> logits = {3, 1, 3, 2};
  EXPECT_THAT(TopK(logits, 1), ElementsAre(0));
  EXPECT_THAT(TopK(logits, 4), ElementsAre(0, 2, 3, 1));
}

}  // namespace
}  // namespace hyperserve
