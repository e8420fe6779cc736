// The learning rate of an iteration: a linear rise, then half a cosine.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hyperserve {

struct Schedule {
  double peak = 1e-3;
  double last = 0.0;  // at iteration `iterations - 1`
  int iterations = 1;
  int warm_up = 0;  // iterations before the peak

  double RateAt(int iteration) const {
    if (iteration < warm_up) return peak * (iteration + 1) / (warm_up + 1);
    const int falling = std::max(1, iterations - 1 - warm_up);
    const double progress = std::min(1.0, static_cast<double>(iteration - warm_up) / falling);
    return last + 0.5 * (peak - last) * (1.0 + std::cos(std::numbers::pi * progress));
  }
};

}  // namespace hyperserve
