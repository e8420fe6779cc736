#include "training/measure/pace.h"

#include <algorithm>
#include <cmath>

namespace hyperserve {
namespace {

// From one batch size that is timed to the next.
constexpr int64_t kBatchGrowth = 8;

}  // namespace

std::vector<int64_t> TimedSizes(int64_t largest) {
  std::vector<int64_t> sizes;
  for (int64_t rows = 1; rows < largest; rows *= kBatchGrowth) sizes.push_back(rows);
  sizes.push_back(largest);
  return sizes;
}

Pace Pace::Of(double evaluations, double one_row, int64_t rows, double all_rows) {
  const double others = std::max(all_rows - one_row, 0.0) / std::max<double>(1, rows - 1);
  const double each = std::min(others, one_row);
  return {.batch = (one_row - each) / evaluations, .row = each / evaluations};
}

double Pace::Solve(double evaluations, int64_t rows, int64_t at_once) const {
  const auto batches = static_cast<double>((rows + at_once - 1) / at_once);
  return evaluations * (batches * batch + static_cast<double>(rows) * row);
}

double Pace::TimedRuns(double evaluations, int64_t largest) const {
  double all = 0;
  for (const int64_t rows : TimedSizes(largest)) {
    const double one = Solve(evaluations, rows, rows);
    all += one * (1 + std::clamp(std::ceil(kTimedSeconds / one), 1.0, double{kTimedRuns}));
  }
  return all;
}

}  // namespace hyperserve
