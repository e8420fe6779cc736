// States between the two ends of a step: the method's own interpolant where it has one, else the
// cubic Hermite polynomial. Both are continuous with their first derivative from step to step.
#pragma once

#include <span>
#include <utility>

#include "core/ode/space.h"
#include "core/ode/step.h"
#include "core/ode/tableau.h"

namespace hyperserve {

// z(s + theta eps) = z + end (z_next - z) + eps (slope r_1 + end_slope r_end)
//                      + bump eps sum_j dense_j r_j.
struct DenseWeights {
  double end = 0.0, slope = 0.0, end_slope = 0.0, bump = 0.0;
};

constexpr DenseWeights DenseWeightsAt(double theta) {
  const double rest = 1.0 - theta;
  return {.end = theta * theta * (3.0 - 2.0 * theta),
          .slope = theta * rest * rest,
          .end_slope = -theta * theta * rest,
          .bump = theta * theta * rest * rest};
}

enum class Interpolant {
  kHermite,  // any step, corrected ones included
  kOwn,      // the method's: needs all stages() slopes, and a step without correction
};

// The state of each row at its own theta in [0, 1]. slopes: r_1 and, for kOwn, all others;
// end_slope = f(s + eps, z_next).
template <StateSpace Space>
typename Space::State Interpolate(const Space& space, const Tableau& tableau,
                                  Interpolant interpolant, const PerRow& eps, const PerRow& theta,
                                  const typename Space::State& z,
                                  std::span<const typename Space::State> slopes,
                                  const typename Space::State& z_next,
                                  const typename Space::State& end_slope) {
  const size_t rows = theta.size();
  PerRow away(rows), end(rows), slope(rows), closing(rows), bump(rows);
  for (size_t row = 0; row < rows; ++row) {
    const DenseWeights weights = DenseWeightsAt(theta[row]);
    away[row] = -weights.end;
    end[row] = weights.end;
    slope[row] = weights.slope * eps[row];
    closing[row] = weights.end_slope * eps[row];
    bump[row] = weights.bump * eps[row];
  }
  Combination<Space> move;
  move.Add(std::move(away), z);
  move.Add(std::move(end), z_next);
  move.Add(std::move(slope), slopes.front());
  move.Add(std::move(closing), end_slope);
  if (interpolant == Interpolant::kOwn) move.AddSlopes(bump, tableau.dense, slopes);
  return move.Sum(space, z);
}

}  // namespace hyperserve
