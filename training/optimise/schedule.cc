#include "training/optimise/schedule.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>

namespace hyperserve {

double LearningRate(const training::Optimiser& optimiser, int iteration) {
  const double peak = optimiser.rate(), last = optimiser.final_rate();
  const int warm_up = optimiser.warm_up();
  if (iteration < warm_up) return peak * (iteration + 1) / (warm_up + 1);
  const int falling = std::max(1, optimiser.iterations() - 1 - warm_up);
  const double progress = std::min(1.0, static_cast<double>(iteration - warm_up) / falling);
  return last + 0.5 * (peak - last) * (1.0 + std::cos(std::numbers::pi * progress));
}

double SteadySeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double FitTime::SecondsLeft() const {
  if (optimiser_.seconds() <= 0) return std::numeric_limits<double>::infinity();
  return optimiser_.seconds() - Seconds();
}

int FitTime::PlaceInSchedule(int iteration) const {
  if (optimiser_.seconds() <= 0) return iteration;
  const double share = std::min(1.0, Seconds() / optimiser_.seconds());
  return std::max(iteration, static_cast<int>(share * (optimiser_.iterations() - 1)));
}

}  // namespace hyperserve
