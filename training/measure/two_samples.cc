#include "training/measure/two_samples.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "training/data/random.h"

namespace hyperserve {
namespace {

constexpr int64_t kRowsAtOnce = 500;    // bounds the memory for distances
constexpr int64_t kExactDistances = 2;  // at::cdist: no detour over products, which rounds more
constexpr double kEulerGamma = 0.57721566490153286;

// Calls use(first row, distances of some rows to all) for each block of rows.
template <class Use>
void ForBlocks(const at::Tensor& points, const Use& use) {
  for (int64_t first = 0; first < points.size(0); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, points.size(0) - first);
    use(first, at::cdist(points.narrow(0, first, count), points, 2.0, kExactDistances));
  }
}

// A column of each division: 1 for the points of its first set, else 0. The first one is the given
// division.
at::Tensor Divisions(int64_t first_set, int64_t points, int permutations, uint64_t seed) {
  RandomStream stream(seed, RandomPurpose::kBatches);
  const at::Tensor columns = at::zeros({permutations + 1, points}, at::kDouble);
  std::vector<int64_t> order(points);
  std::iota(order.begin(), order.end(), 0);
  for (int division = 0; division <= permutations; ++division) {
    double* column = columns[division].mutable_data_ptr<double>();
    for (int64_t i = 0; i < first_set; ++i) column[order[i]] = 1;
    for (int64_t i = points - 1; i > 0; --i) std::swap(order[i], order[stream.Below(i + 1)]);
  }
  return columns.t().contiguous();
}

}  // namespace

EnergyTest TestEnergy(const at::Tensor& x, const at::Tensor& y, int permutations, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const at::Tensor points = at::cat({x, y}).to(at::kDouble);
  const auto n = static_cast<double>(x.size(0)), m = static_cast<double>(y.size(0));
  const at::Tensor divisions = Divisions(x.size(0), points.size(0), permutations, seed);
  // Sums of distances within the first set, and from the first set to all points.
  at::Tensor within = at::zeros({permutations + 1}, at::kDouble);
  at::Tensor to_all = at::zeros({permutations + 1}, at::kDouble);
  double total = 0;
  ForBlocks(points, [&](int64_t first, const at::Tensor& distances) {
    const at::Tensor block = divisions.narrow(0, first, distances.size(0));
    within += (block * distances.mm(divisions)).sum(0);
    to_all += block.t().mv(distances.sum(1));
    total += distances.sum().item<double>();
  });
  const at::Tensor between = to_all - within;
  const at::Tensor rest = total - within - 2 * between;
  const at::Tensor energy = 2 * between / (n * m) - within / (n * n) - rest / (m * m);
  const at::Tensor as_far = energy.ge(energy[0]).to(at::kDouble);  // the given division among them
  return {.distance = energy[0].item<double>(), .p = as_far.mean().item<double>()};
}

double EntropyByNeighbours(const at::Tensor& points) {
  const at::NoGradGuard no_grad;
  const at::Tensor all = points.to(at::kDouble);
  const auto n = static_cast<double>(all.size(0)), d = static_cast<double>(all.size(1));
  double log_distances = 0;
  ForBlocks(all, [&](int64_t first, const at::Tensor& distances) {
    distances.diagonal(first).fill_(std::numeric_limits<double>::infinity());
    log_distances += distances.amin(1).log().sum().item<double>();
  });
  const double log_ball = 0.5 * d * std::log(std::numbers::pi) - std::lgamma(0.5 * d + 1);
  const double digamma = std::log(n) - 0.5 / n;  // to 1 / (12 n^2)
  return digamma + kEulerGamma + log_ball + d * log_distances / n;
}

}  // namespace hyperserve
