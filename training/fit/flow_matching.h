// What flow matching fits a field to: straight paths between noise and data, and their velocities.
// Source: Lipman et al., "Flow Matching for Generative Modeling", arXiv 2210.02747; the pairing
// within a batch: Tong et al., arXiv 2302.00482.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <vector>

#include "training/data/random.h"

namespace hyperserve {

// Where a field is asked, and what it should answer.
struct PathPoints {
  at::Tensor depth;     // [rows], within the span
  at::Tensor state;     // [rows, D]
  at::Tensor velocity;  // [rows, D], of the path per unit of depth
};
// One point of each path from start to end, both [rows, D], at the share [rows] of its way through
// `span`. Pure.
PathPoints PointsOnPaths(const at::Tensor& start, const at::Tensor& end, const at::Tensor& share,
                         const std::array<double, 2>& span);

// Mean over rows of |guess - velocity|^2. Pure.
at::Tensor VelocityLoss(const at::Tensor& guess, const at::Tensor& velocity);

// The order of `end` that pairs it with `start`, both [rows, D] on the CPU in float32. In each of
// `rounds` rounds, the rows meet in random pairs, which exchange their ends where that makes the
// sum of squared lengths smaller. Either set keeps its points, so their densities stay the same.
std::vector<int64_t> ShorterPairing(const at::Tensor& start, const at::Tensor& end, int rounds,
                                    RandomStream& stream);

}  // namespace hyperserve
