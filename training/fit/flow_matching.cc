#include "training/fit/flow_matching.h"

#include <numeric>
#include <utility>

namespace hyperserve {

PathPoints PointsOnPaths(const at::Tensor& start, const at::Tensor& end, const at::Tensor& share,
                         const std::array<double, 2>& span) {
  const double length = span[1] - span[0];
  const at::Tensor way = end - start;
  return {.depth = span[0] + length * share,
          .state = start + share.unsqueeze(1) * way,
          .velocity = way / length};
}

at::Tensor VelocityLoss(const at::Tensor& guess, const at::Tensor& velocity) {
  return (guess - velocity).square().sum(1).mean();
}

std::vector<int64_t> ShorterPairing(const at::Tensor& start, const at::Tensor& end, int rounds,
                                    RandomStream& stream) {
  const int64_t rows = start.size(0), dimensions = start.size(1);
  const at::Tensor from = start.contiguous(), to = end.contiguous();
  const float *a = from.const_data_ptr<float>(), *b = to.const_data_ptr<float>();
  std::vector<int64_t> order(rows), meeting(rows);
  std::iota(order.begin(), order.end(), 0);
  std::iota(meeting.begin(), meeting.end(), 0);
  for (int round = 0; round < rounds; ++round) {
    for (int64_t i = rows - 1; i > 0; --i) std::swap(meeting[i], meeting[stream.Below(i + 1)]);
    for (int64_t pair = 0; pair + 1 < rows; pair += 2) {
      const int64_t i = meeting[pair], j = meeting[pair + 1];
      // The sum of squared lengths changes by 2 (a_i - a_j) . (b_i - b_j).
      double change = 0;
      for (int64_t d = 0; d < dimensions; ++d) {
        change += static_cast<double>(a[i * dimensions + d] - a[j * dimensions + d]) *
                  (b[order[i] * dimensions + d] - b[order[j] * dimensions + d]);
      }
      if (change < 0) std::swap(order[i], order[j]);
    }
  }
  return order;
}

}  // namespace hyperserve
