#include "server/calls/probabilities.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hyperserve {

std::vector<double> Softmax(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> probabilities(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    sum += probabilities[i] = std::exp(logits[i] - largest);
  }
  for (double& p : probabilities) p /= sum;
  return probabilities;
}

std::vector<int64_t> TopK(std::span<const double> logits, int k) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  order.resize(static_cast<size_t>(k));
  return order;
}

}  // namespace hyperserve
