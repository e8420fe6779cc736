// The problems that solvers of ordinary differential equations are compared on. DETEST classes A
// (single equations) and B (small systems): Hull, Enright, Fellen, Sedgwick, "Comparing numerical
// methods for ordinary differential equations", 1972, all over [0, 20]. The Arenstorf orbit:
// Hairer, Norsett, Wanner I, II.0, over one period. Van der Pol with mu = 5 over [0, 20].
#pragma once

#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace hyperserve::testing {

// A field in any floating-point type, so that the truth can be computed in a wider one.
template <class Real>
using RealField = std::function<void(Real s, std::span<const Real> z, std::span<Real> dz)>;

template <class Real>
struct NonstiffProblem {
  std::string name;
  Real end = 20;
  std::vector<Real> start;
  RealField<Real> field;
};

// Planar three-body problem, the masses of earth and moon.
template <class Real>
void ArenstorfField(Real, std::span<const Real> z, std::span<Real> dz) {
  const Real mu = Real(0.012277471L), nu = 1 - mu;
  const Real to_earth = std::pow((z[0] + mu) * (z[0] + mu) + z[1] * z[1], Real(1.5));
  const Real to_moon = std::pow((z[0] - nu) * (z[0] - nu) + z[1] * z[1], Real(1.5));
  dz[0] = z[2];
  dz[1] = z[3];
  dz[2] = z[0] + 2 * z[3] - nu * (z[0] + mu) / to_earth - mu * (z[0] - nu) / to_moon;
  dz[3] = z[1] - 2 * z[2] - nu * z[1] / to_earth - mu * z[1] / to_moon;
}

template <class Real>
std::vector<NonstiffProblem<Real>> DetestClassA() {
  using Z = std::span<const Real>;
  using D = std::span<Real>;
  return {
      {.name = "A1", .start = {1}, .field = [](Real, Z z, D dz) { dz[0] = -z[0]; }},
      {.name = "A2",
       .start = {1},
       .field = [](Real, Z z, D dz) { dz[0] = -z[0] * z[0] * z[0] / 2; }},
      {.name = "A3", .start = {1}, .field = [](Real s, Z z, D dz) { dz[0] = z[0] * std::cos(s); }},
      {.name = "A4",
       .start = {1},
       .field = [](Real, Z z, D dz) { dz[0] = z[0] / 4 * (1 - z[0] / 20); }},
      {.name = "A5",
       .start = {4},
       .field = [](Real s, Z z, D dz) { dz[0] = (z[0] - s) / (z[0] + s); }},
  };
}

template <class Real>
std::vector<NonstiffProblem<Real>> DetestClassB() {
  using Z = std::span<const Real>;
  using D = std::span<Real>;
  return {
      {.name = "B1",
       .start = {1, 3},
       .field =
           [](Real, Z z, D dz) {
             dz[0] = 2 * (z[0] - z[0] * z[1]);
             dz[1] = -(z[1] - z[0] * z[1]);
           }},
      {.name = "B2",
       .start = {2, 0, 1},
       .field =
           [](Real, Z z, D dz) {
             dz[0] = -z[0] + z[1];
             dz[1] = z[0] - 2 * z[1] + z[2];
             dz[2] = z[1] - z[2];
           }},
      {.name = "B3",
       .start = {1, 0, 0},
       .field =
           [](Real, Z z, D dz) {
             dz[0] = -z[0];
             dz[1] = z[0] - z[1] * z[1];
             dz[2] = z[1] * z[1];
           }},
      {.name = "B4",
       .start = {3, 0, 0},
       .field =
           [](Real, Z z, D dz) {
             const Real radius = std::sqrt(z[0] * z[0] + z[1] * z[1]);
             dz[0] = -z[1] - z[0] * z[2] / radius;
             dz[1] = z[0] - z[1] * z[2] / radius;
             dz[2] = z[0] / radius;
           }},
      {.name = "B5",
       .start = {0, 1, 1},
       .field =
           [](Real, Z z, D dz) {
             dz[0] = z[1] * z[2];
             dz[1] = -z[0] * z[2];
             dz[2] = Real(-0.51L) * z[0] * z[1];
           }},
  };
}

template <class Real>
std::vector<NonstiffProblem<Real>> NonstiffProblems() {
  std::vector<NonstiffProblem<Real>> problems = DetestClassA<Real>();
  for (auto& problem : DetestClassB<Real>()) problems.push_back(std::move(problem));
  problems.push_back({.name = "Arenstorf",
                      .end = Real(17.0652165601579625588917206249L),
                      .start = {Real(0.994L), 0, 0, Real(-2.00158510637908252240537862224L)},
                      .field = ArenstorfField<Real>});
  problems.push_back({.name = "VanDerPol5",
                      .start = {2, 0},
                      .field = [](Real, std::span<const Real> z, std::span<Real> dz) {
                        dz[0] = z[1];
                        dz[1] = 5 * (1 - z[0] * z[0]) * z[1] - z[0];
                      }});
  return problems;
}

}  // namespace hyperserve::testing
