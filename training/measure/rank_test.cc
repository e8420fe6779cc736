#include "training/measure/rank_test.h"

#include <ATen/ATen.h>

namespace hyperserve {

RankTest TestRanks(std::span<const int64_t> ranks, int64_t draws, int64_t bins) {
  RankTest test{.counts = std::vector<int64_t>(bins)};
  for (const int64_t rank : ranks) ++test.counts[rank * bins / (draws + 1)];
  const double expected = static_cast<double>(ranks.size()) / static_cast<double>(bins);
  double sum = 0;
  for (const int64_t count : test.counts) {
    const double excess = static_cast<double>(count) - expected;
    sum += excess * excess / expected;
  }
  const auto half = [](double twice) { return at::scalar_tensor(twice / 2, at::kDouble); };
  test.p = at::special_gammaincc(half(static_cast<double>(bins - 1)), half(sum)).item<double>();
  return test;
}

}  // namespace hyperserve
