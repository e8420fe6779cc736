// One step of a method, classical or hypersolved, over any StepSpace. The engines serve these
// functions and the trainer differentiates them; no second copy of the step exists.
//
//   psi    = sum_j b_j r_j            r_i = f(s + c_i eps, z + eps sum_j a_ij r_j)
//   z_next = z + eps psi + eps^(p+1) g(eps, s, z, r, z_first)
//
// s and eps hold one double for each row. Nothing here fails: numbers that are not finite spread,
// and the caller looks for them. Spans and states are borrowed for the call.
//
// Source: Poli, Massaroli, Yamashita, Asama, Park, "Hypersolvers: Toward Fast Continuous-Depth
// Models", NeurIPS 2020 (the hypersolved step, the residual and its fitting); Hairer, Norsett,
// Wanner, "Solving Ordinary Differential Equations I", section II.1 (explicit Runge-Kutta methods).
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/ode/space.h"
#include "core/ode/tableau.h"

namespace hyperserve {

// factor * eps^power, row by row.
inline PerRow ScaledPower(const PerRow& eps, int power, double factor) {
  PerRow scaled(eps.size(), factor);
  for (size_t row = 0; row < eps.size(); ++row) {
    for (int i = 0; i < power; ++i) scaled[row] *= eps[row];
  }
  return scaled;
}

// base + sum_i weights_i * states_i, with terms that are added one by one. The states must outlive
// the call of Sum.
template <StepSpace Space>
class Combination {
 public:
  using State = typename Space::State;

  Combination() = default;
  Combination(const Combination&) = delete;  // it may point to a state of its own
  Combination& operator=(const Combination&) = delete;

  // Borrows the state; the weights are kept.
  void Add(PerRow weights, const State& state) {
    weights_.push_back(std::move(weights));
    states_.push_back(&state);
  }

  // Adds eps * factors_j * slopes_j for each j. Terms with a factor of zero are left out.
  void AddSlopes(const PerRow& eps, const StageWeights& factors, std::span<const State> slopes) {
    for (size_t j = 0; j < slopes.size(); ++j) {
      if (factors[j] != 0.0) Add(ScaledPower(eps, 1, factors[j]), slopes[j]);
    }
  }

  // Adds eps psi = eps sum_j b_j r_j. Where two weights cancel, as those of small alpha do, psi is
  // r_1 + b_2 (r_2 - r_1): the slopes are close, so their difference has no rounding error.
  void AddUpdate(const Space& space, const Tableau& tableau, const PerRow& eps,
                 std::span<const State> slopes) {
    if (tableau.solution_stages() != 2 || tableau.b[0] >= 0.0) {
      AddSlopes(eps, tableau.b, slopes);
      return;
    }
    difference_.emplace(space.Minus(slopes[1], slopes[0]));
    Add(eps, slopes[0]);
    Add(ScaledPower(eps, 1, tableau.b[1]), *difference_);
  }

  // In the order in which the terms were added, so that equal calls give equal bits. May be called
  // again, with another base.
  State Sum(const Space& space, const State& base) const {
    std::vector<Term<State>> terms;
    for (size_t i = 0; i < states_.size(); ++i) {
      terms.push_back({.weights = &weights_[i], .slope = states_[i]});
    }
    return space.Combine(base, terms);
  }

 private:
  std::vector<PerRow> weights_;
  std::vector<const State*> states_;
  std::optional<State> difference_;  // owned by AddUpdate; states_ points to it
};

// The next slope r_i, given the i - 1 slopes before it. One evaluation of f.
template <StepSpace Space>
typename Space::State NextSlope(const Space& space, const Tableau& tableau, const PerRow& s,
                                const PerRow& eps, const typename Space::State& z,
                                std::span<const typename Space::State> slopes) {
  const size_t i = slopes.size();
  if (i == 0) return space.Field(s, z);
  Combination<Space> increment;
  increment.AddSlopes(eps, tableau.a[i], slopes);
  PerRow depth(s);
  for (size_t row = 0; row < s.size(); ++row) depth[row] += tableau.c[i] * eps[row];
  return space.Field(depth, increment.Sum(space, z));
}

// The first `stages` slopes r_1, r_2, ... One evaluation of f each.
template <StepSpace Space>
std::vector<typename Space::State> Slopes(const Space& space, const Tableau& tableau, int stages,
                                          const PerRow& s, const PerRow& eps,
                                          const typename Space::State& z) {
  using State = typename Space::State;
  std::vector<State> slopes;
  while (slopes.size() < static_cast<size_t>(stages)) {
    slopes.push_back(NextSlope(space, tableau, s, eps, z, std::span<const State>(slopes)));
  }
  return slopes;
}

// z + eps psi. `slopes` holds at least the stages that b uses.
template <StepSpace Space>
typename Space::State ClassicalUpdate(const Space& space, const Tableau& tableau, const PerRow& eps,
                                      const typename Space::State& z,
                                      std::span<const typename Space::State> slopes) {
  Combination<Space> increment;
  increment.AddUpdate(space, tableau, eps, slopes);
  return increment.Sum(space, z);
}

// z + eps psi + eps^(p+1) g, with a given g.
template <StepSpace Space>
typename Space::State CorrectedUpdate(const Space& space, const Tableau& tableau, const PerRow& eps,
                                      const typename Space::State& z,
                                      std::span<const typename Space::State> slopes,
                                      const typename Space::State& g) {
  Combination<Space> increment;
  increment.AddUpdate(space, tableau, eps, slopes);
  increment.Add(ScaledPower(eps, tableau.order + 1, 1.0), g);
  return increment.Sum(space, z);
}

// psi.
template <StepSpace Space>
typename Space::State Psi(const Space& space, const Tableau& tableau,
                          const typename Space::State& z,
                          std::span<const typename Space::State> slopes) {
  const PerRow ones(static_cast<size_t>(space.Rows(z)), 1.0);
  return ClassicalUpdate(space, tableau, ones, space.Zero(z), slopes);
}

// R = (z_end - z - eps psi) / eps^(p+1), with the reference z_end = z(s + eps). Residual fitting
// trains g to equal R. Precondition: eps != 0.
template <StepSpace Space>
typename Space::State Residual(const Space& space, const Tableau& tableau, const PerRow& eps,
                               const typename Space::State& z,
                               std::span<const typename Space::State> slopes,
                               const typename Space::State& z_end) {
  const typename Space::State z_classical = ClassicalUpdate(space, tableau, eps, z, slopes);
  Combination<Space> difference;
  difference.Add(PerRow(eps.size(), -1.0), z_classical);
  const typename Space::State local_error = difference.Sum(space, z_end);
  PerRow scale = ScaledPower(eps, tableau.order + 1, 1.0);
  for (double& value : scale) value = 1.0 / value;
  Combination<Space> scaled;
  scaled.Add(std::move(scale), local_error);
  return scaled.Sum(space, space.Zero(z));
}

// The result of one step; both members are the caller's.
template <StepSpace Space>
struct Step {
  typename Space::State z_next;
  std::vector<typename Space::State> slopes;  // those that z_next needs, stage 1 first
};

// One step with g = 0. solution_stages() evaluations of f.
template <StepSpace Space>
Step<Space> ClassicalStep(const Space& space, const Tableau& tableau, const PerRow& s,
                          const PerRow& eps, const typename Space::State& z) {
  auto slopes = Slopes(space, tableau, tableau.solution_stages(), s, eps, z);
  auto z_next = ClassicalUpdate<Space>(space, tableau, eps, z, slopes);
  return {.z_next = std::move(z_next), .slopes = std::move(slopes)};
}

// z + eps psi + eps^(p+1) g, with one evaluation of the space's g. z_first = z(s0).
template <CorrectedStepSpace Space>
typename Space::State HypersolvedUpdate(const Space& space, const Tableau& tableau, const PerRow& s,
                                        const PerRow& eps, const typename Space::State& z,
                                        const typename Space::State& z_first,
                                        std::span<const typename Space::State> slopes) {
  const auto g = space.Correction(eps, s, z, slopes, z_first);
  return CorrectedUpdate<Space>(space, tableau, eps, z, slopes, g);
}

// One step with the space's g: solution_stages() evaluations of f and one of g.
template <CorrectedStepSpace Space>
Step<Space> HypersolvedStep(const Space& space, const Tableau& tableau, const PerRow& s,
                            const PerRow& eps, const typename Space::State& z,
                            const typename Space::State& z_first) {
  auto slopes = Slopes(space, tableau, tableau.solution_stages(), s, eps, z);
  auto z_next = HypersolvedUpdate<Space>(space, tableau, s, eps, z, z_first, slopes);
  return {.z_next = std::move(z_next), .slopes = std::move(slopes)};
}

}  // namespace hyperserve
