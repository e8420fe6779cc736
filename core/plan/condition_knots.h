// A condition that changes with the depth, a control signal: its values at knots, and how it goes
// from one to the next. Plain data and arithmetic; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hyperserve {

enum class Interpolation {
  kLinear,
  // Cubic Hermite, the slope at a knot being that from the knot before it; at the first one, that
  // to the second. So u(s) depends on no knot beyond the one that follows s (Morrill et al. 2021,
  // "Neural Controlled Differential Equations for Online Prediction Tasks", section 3).
  kCubicHermite,
};
inline constexpr std::array<std::string_view, 2> kInterpolations = {"linear", "cubic_hermite"};

// Which depths are valid is checked by CheckSpec (core/engine/choose_engine.h).
struct ConditionKnots {
  std::vector<double> depths;  // strictly increasing, at least two; on the field's own clock
  Interpolation interpolation = Interpolation::kLinear;
  bool empty() const { return depths.empty(); }  // the condition is constant
  bool operator==(const ConditionKnots&) const = default;
};

// The value at a depth is the sum of these weights times the values at the knots first, first + 1
// and first + 2. Before the first and after the last knot it stays what it is there.
struct KnotWeights {
  int64_t first = 0;
  std::array<double, 3> weights = {0, 0, 0};
};
// The weights sum to 1 but for rounding. Precondition: the knots are valid, and not empty.
inline KnotWeights WeightsAt(const ConditionKnots& knots, double depth) {
  const std::vector<double>& depths = knots.depths;
  const double s = std::clamp(depth, depths.front(), depths.back());
  const auto after = std::upper_bound(depths.begin() + 1, depths.end() - 1, s);
  const int64_t k = after - depths.begin() - 1;  // s lies between knots k and k + 1
  const auto knot = [&](int64_t i) { return depths[static_cast<size_t>(i)]; };
  const double length = knot(k + 1) - knot(k), t = (s - knot(k)) / length;
  double before = 0, at = 1 - t, next = t;
  if (knots.interpolation == Interpolation::kCubicHermite) {
    const double slope_at = t * (1 - t) * (1 - t), slope_next = t * t * (t - 1);
    at = (1 + 2 * t) * (1 - t) * (1 - t) - slope_next;
    next = t * t * (3 - 2 * t) + slope_next;
    if (k == 0) {
      at -= slope_at;
      next += slope_at;
    } else {
      const double ratio = length / (knot(k) - knot(k - 1));
      before = -slope_at * ratio;
      at += slope_at * ratio;
    }
  }
  if (k == 0) return {.first = 0, .weights = {at, next, 0}};
  return {.first = k - 1, .weights = {before, at, next}};
}

}  // namespace hyperserve
