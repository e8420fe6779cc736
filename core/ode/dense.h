// Dense output: states between the two ends of a step, by the method's own interpolant or by the
// cubic Hermite polynomial. Both are continuous across steps, and so are their first derivatives.
// Nothing here fails; a result may be non-finite. Pure; any thread.
//
// Source: Hairer, Norsett, Wanner, "Solving Ordinary Differential Equations I", section II.6. The
// weights of the own interpolants stand in tableau.h, with their sources.
#pragma once

#include <span>
#include <utility>

#include "core/ode/space.h"
#include "core/ode/step.h"
#include "core/ode/tableau.h"

namespace hyperserve {

// The weights of one theta in [0, 1], with r_end = f(s + eps, z_next):
//
//   z(s + theta eps) = z + end (z_next - z) + eps (slope r_1 + end_slope r_end)
//                        + bump eps sum_j dense_j r_j
struct DenseWeights {
  double end = 0.0, slope = 0.0, end_slope = 0.0, bump = 0.0;
};

// At 0 all weights are 0, which gives z; at 1 only `end` is 1, which gives z_next.
constexpr DenseWeights DenseWeightsAt(double theta) {
  const double rest = 1.0 - theta;
  return {.end = theta * theta * (3.0 - 2.0 * theta),
          .slope = theta * rest * rest,
          .end_slope = -theta * theta * rest,
          .bump = theta * theta * rest * rest};
}

// BatchSolver takes the method's own where the tableau has one and the plan is classical.
enum class Interpolant {
  kHermite,  // of any step, also of a hypersolved one
  kOwn,      // the method's: needs all stages() slopes and a classical step
};

// The state of each row at its own theta in [0, 1]. `slopes` holds r_1 and, for kOwn, all others;
// `end_slope` is r_end.
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
