// Whether ranks are uniform: the test behind simulation-based calibration. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hyperserve {

// Of one number of the points.
struct RankTest {
  std::vector<int64_t> counts;  // of each bin; all bins are equally wide
  double p = 1;                 // of chi-square: small means that the ranks are not uniform
};
// Where a value and `draws` samples come from one density, the number of samples below the value is
// uniform on 0 .. draws (Talts et al. 2018, "Validating Bayesian Inference Algorithms with
// Simulation-Based Calibration"). Preconditions: each rank is within that range, and `bins` >= 2
// divides draws + 1.
RankTest TestRanks(std::span<const int64_t> ranks, int64_t draws, int64_t bins);

}  // namespace hyperserve
