#include "core/model/repository/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace hyperserve {
namespace {

constexpr size_t kQuantiles = 41;  // of the distances: steps of 2.5 %

std::vector<double> Quantiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::vector<double> quantiles;
  for (size_t i = 0; i < kQuantiles; ++i) {
    quantiles.push_back(values[i * (values.size() - 1) / (kQuantiles - 1)]);
  }
  return quantiles;
}

}  // namespace

std::optional<ErrorBound> CalibrateBound(const std::vector<double>& errors,
                                         const std::vector<double>& distances) {
  std::vector<double> ratios, finite;
  for (size_t row = 0; row < errors.size(); ++row) {
    const double ratio = errors[row] == 0.0 ? 0.0 : errors[row] / distances[row];
    ratios.push_back(std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio);
    if (std::isfinite(distances[row])) finite.push_back(distances[row]);
  }
  const auto rank =
      static_cast<size_t>(std::ceil(kBoundCoverage * (static_cast<double>(ratios.size()) + 1)));
  if (rank > ratios.size()) return std::nullopt;
  const auto kth = ratios.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(ratios.begin(), kth, ratios.end());
  if (!std::isfinite(*kth)) return std::nullopt;
  return ErrorBound{.factor = *kth,
                    .rows = static_cast<int>(ratios.size()),
                    .distances = Quantiles(std::move(finite))};
}

double ShareWithin(const ErrorBound& bound, double error) {
  const std::vector<double>& quantiles = bound.distances;
  const auto within = [&](double distance) { return bound.factor * distance <= error; };
  const auto above = std::find_if_not(quantiles.begin(), quantiles.end(), within);
  if (above == quantiles.end()) return 1.0;
  if (above == quantiles.begin()) return 0.0;
  const double low = *(above - 1), high = *above;
  const double part = (error / bound.factor - low) / (high - low);
  const auto steps = static_cast<double>(quantiles.size() - 1);
  return (static_cast<double>(above - quantiles.begin() - 1) + part) / steps;
}

}  // namespace hyperserve
