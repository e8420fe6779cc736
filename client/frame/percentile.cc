#include "client/frame/percentile.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hyperserve {

double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<double>(values.size());
  const auto rank = static_cast<size_t>(std::clamp(std::ceil(p * count), 1.0, count)) - 1;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(rank));
  return values[rank];
}

}  // namespace hyperserve
