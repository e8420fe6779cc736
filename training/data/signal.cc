#include "training/data/signal.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hyperserve {

absl::StatusOr<Signal> Signal::Make(const training::Signal& recipe) {
  bool finite = std::isfinite(recipe.spread()) && recipe.spread() >= 0;
  const auto check = [&finite](double number) { finite = finite && std::isfinite(number); };
  for (const training::Signal::Component& one : recipe.components()) {
    check(one.mean());
    std::for_each(one.sine().begin(), one.sine().end(), check);
    std::for_each(one.cosine().begin(), one.cosine().end(), check);
  }
  if (!finite || recipe.components().empty() || !std::isfinite(recipe.period()) ||
      recipe.period() <= 0) {
    return absl::InvalidArgumentError(
        "a signal has components of finite numbers, a period above 0, and a spread of 0 or more");
  }
  return Signal(recipe);
}

std::vector<double> Signal::At(double s) const {
  std::vector<double> values;
  const double w = 2 * std::numbers::pi * s / recipe_.period();
  for (const training::Signal::Component& one : recipe_.components()) {
    double value = one.mean();
    for (int k = 0; k < one.sine_size(); ++k) value += one.sine(k) * std::sin((k + 1) * w);
    for (int k = 0; k < one.cosine_size(); ++k) value += one.cosine(k) * std::cos((k + 1) * w);
    values.push_back(value);
  }
  return values;
}

void Signal::Surround(double s, std::span<float> rows) const {
  const std::vector<double> start = At(s);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<float>(start[i % start.size()] + recipe_.spread() * rows[i]);
  }
}

void Signal::Repeat(const std::vector<double>& depths, std::span<float> rows) const {
  std::vector<float> row;
  for (const double depth : depths) {
    for (const double value : At(depth)) row.push_back(static_cast<float>(value));
  }
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = row[i % row.size()];
}

}  // namespace hyperserve
