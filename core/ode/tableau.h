// The coefficients of every method, as constexpr data. No Abseil and no LibTorch, so kernels may
// include this header.
//
//   r_i = f(s + c_i eps, z + eps sum_j a_ij r_j)      z_next = z + eps sum_j b_j r_j
//
// Sources: Hairer, Norsett, Wanner, "Solving Ordinary Differential Equations I", II.1 to II.6 (rk3,
// rk4, rk4_38, heun_euler, dopri5 and its dense output); Bogacki and Shampine 1989 (bosh3);
// Tsitouras 2011 (tsit5 and its interpolant). A new method is one tableau here and one name in
// core/plan/method.h. tests/core/ode/tableau_test.cc checks the order conditions of each.
#pragma once

#include <array>
#include <cstddef>

#include "core/plan/method.h"

namespace hyperserve {

inline constexpr int kStagesMax = 7;

using StageWeights = std::array<double, kStagesMax>;

// One explicit method. Entries beyond its stages are 0; a default-constructed one has no stages.
struct Tableau {
  Method method = Method::kEuler;
  int order = 0;           // p, of the solution that is kept
  int embedded_order = 0;  // of the embedded solution b_hat; 0: no embedded pair
  std::array<StageWeights, kStagesMax> a{};
  StageWeights b{};
  StageWeights c{};
  StageWeights error{};  // b - b_hat: eps sum_j error_j r_j estimates the local error
  // The method's own interpolant of order 4 is the cubic Hermite polynomial through both ends plus
  // theta^2 (1 - theta)^2 eps sum_j dense_j r_j. Zeros: the method has no interpolant of its own.
  StageWeights dense{};

  // Whether error control can use the method.
  constexpr bool embedded() const { return embedded_order > 0; }
  constexpr bool has_dense() const { return Count(dense) > 0; }
  // The stages that z_next needs; stages() adds those that only the error estimate needs.
  constexpr int solution_stages() const { return Count(b); }
  // Evaluations of f of one step under error control, before first-same-as-last saves one.
  constexpr int stages() const {
    return Count(error) > solution_stages() ? Count(error) : solution_stages();
  }
  // First same as last: the last stage is f(s + eps, z_next), the first stage of the next step.
  constexpr bool fsal() const {
    const size_t last = static_cast<size_t>(stages() - 1);
    return last > 0 && c[last] == 1.0 && a[last] == b;
  }

 private:
  // Up to the last weight that is not zero.
  static constexpr int Count(const StageWeights& weights) {
    int count = kStagesMax;
    while (count > 0 && weights[static_cast<size_t>(count - 1)] == 0.0) --count;
    return count;
  }
};

// The second-order family: midpoint at alpha = 1/2, ralston at 2/3, heun at 1.
constexpr Tableau AlphaTableau(Method method, double alpha) {
  const double b2 = 1.0 / (2.0 * alpha);
  return {
      .method = method, .order = 2, .a = {{{}, {alpha}}}, .b = {1.0 - b2, b2}, .c = {0.0, alpha}};
}

// Heun's method, with Euler's for the error: b - b_hat = (1/2 - 1, 1/2).
constexpr Tableau HeunEulerTableau() {
  Tableau tableau = AlphaTableau(Method::kHeunEuler, 1.0);
  tableau.embedded_order = 1;
  tableau.error = {-0.5, 0.5};
  return tableau;
}

inline constexpr Tableau kEulerTableau = {.method = Method::kEuler, .order = 1, .b = {1.0}};

inline constexpr Tableau kRk3Tableau = {.method = Method::kRk3,
                                        .order = 3,
                                        .a = {{{}, {1.0 / 2}, {-1.0, 2.0}}},
                                        .b = {1.0 / 6, 2.0 / 3, 1.0 / 6},
                                        .c = {0.0, 1.0 / 2, 1.0}};

inline constexpr Tableau kRk4Tableau = {.method = Method::kRk4,
                                        .order = 4,
                                        .a = {{{}, {1.0 / 2}, {0.0, 1.0 / 2}, {0.0, 0.0, 1.0}}},
                                        .b = {1.0 / 6, 1.0 / 3, 1.0 / 3, 1.0 / 6},
                                        .c = {0.0, 1.0 / 2, 1.0 / 2, 1.0}};

inline constexpr Tableau kRk438Tableau = {.method = Method::kRk438,
                                          .order = 4,
                                          .a = {{{}, {1.0 / 3}, {-1.0 / 3, 1.0}, {1.0, -1.0, 1.0}}},
                                          .b = {1.0 / 8, 3.0 / 8, 3.0 / 8, 1.0 / 8},
                                          .c = {0.0, 1.0 / 3, 2.0 / 3, 1.0}};

inline constexpr Tableau kBosh3Tableau = {
    .method = Method::kBosh3,
    .order = 3,
    .embedded_order = 2,
    .a = {{{}, {1.0 / 2}, {0.0, 3.0 / 4}, {2.0 / 9, 1.0 / 3, 4.0 / 9}}},
    .b = {2.0 / 9, 1.0 / 3, 4.0 / 9},
    .c = {0.0, 1.0 / 2, 3.0 / 4, 1.0},
    .error = {-5.0 / 72, 1.0 / 12, 1.0 / 9, -1.0 / 8}};

inline constexpr StageWeights kTsit5B = {0.09646076681806523, 0.01,
                                         0.4798896504144996,  1.379008574103742,
                                         -3.290069515436081,  2.324710524099774};

inline constexpr Tableau kTsit5Tableau = {
    .method = Method::kTsit5,
    .order = 5,
    .embedded_order = 4,
    .a = {{{},
           {0.161},
           {-0.008480655492356989, 0.335480655492357},
           {2.8971530571054935, -6.359448489975075, 4.3622954328695815},
           {5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525},
           {5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401,
            -0.028269050394068383},
           kTsit5B}},
    .b = kTsit5B,
    .c = {0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0},
    .error = {-0.00178001105222577714, -0.0008164344596567469, 0.007880878010261995,
              -0.1447110071732629, 0.5823571654525552, -0.45808210592918697, 1.0 / 66},
    .dense = {-1.0530884977290216, 0.1017, 2.490627285651252793, -16.54810288924490272,
              47.37952196281928122, -34.87065786149660974, 2.5}};

inline constexpr StageWeights kDopri5B = {35.0 / 384,     0.0,      500.0 / 1113, 125.0 / 192,
                                          -2187.0 / 6784, 11.0 / 84};

inline constexpr Tableau kDopri5Tableau = {
    .method = Method::kDopri5,
    .order = 5,
    .embedded_order = 4,
    .a = {{{},
           {1.0 / 5},
           {3.0 / 40, 9.0 / 40},
           {44.0 / 45, -56.0 / 15, 32.0 / 9},
           {19372.0 / 6561, -25360.0 / 2187, 64448.0 / 6561, -212.0 / 729},
           {9017.0 / 3168, -355.0 / 33, 46732.0 / 5247, 49.0 / 176, -5103.0 / 18656},
           kDopri5B}},
    .b = kDopri5B,
    .c = {0.0, 1.0 / 5, 3.0 / 10, 4.0 / 5, 8.0 / 9, 1.0, 1.0},
    .error = {71.0 / 57600, 0.0, -71.0 / 16695, 71.0 / 1920, -17253.0 / 339200, 22.0 / 525,
              -1.0 / 40},
    .dense = {-12715105075.0 / 11282082432.0, 0.0, 87487479700.0 / 32700410799.0,
              -10690763975.0 / 1880347072.0, 701980252875.0 / 199316789632.0,
              -1453857185.0 / 822651844.0, 69997945.0 / 29380423.0}};

// The coefficients of a method; none for a method that runs from a table. Precondition: alpha lies
// in (0, 1] for kAlpha.
constexpr Tableau TableauFor(const MethodChoice& choice) {
  switch (choice.method) {
    case Method::kEuler:
      return kEulerTableau;
    case Method::kMidpoint:
      return AlphaTableau(choice.method, 1.0 / 2);
    case Method::kHeun:
      return AlphaTableau(choice.method, 1.0);
    case Method::kRalston:
      return AlphaTableau(choice.method, 2.0 / 3);
    case Method::kAlpha:
      return AlphaTableau(choice.method, choice.alpha);
    case Method::kRk3:
      return kRk3Tableau;
    case Method::kRk4:
      return kRk4Tableau;
    case Method::kRk438:
      return kRk438Tableau;
    case Method::kHeunEuler:
      return HeunEulerTableau();
    case Method::kBosh3:
      return kBosh3Tableau;
    case Method::kTsit5:
      return kTsit5Tableau;
    case Method::kDopri5:
      return kDopri5Tableau;
    case Method::kAb2:
    case Method::kLearned:
      return {.method = choice.method, .order = NameOf(choice.method).order};
  }
  return {};
}

// Compares names, orders and embedded pairs of all one-step methods with kMethodNames.
constexpr bool TableauxAgreeWithNames() {
  for (const MethodName& name : kMethodNames) {
    const Tableau tableau = TableauFor({.method = name.method, .alpha = 1.0});
    if (NameOf(name.method).name != name.name || tableau.method != name.method ||
        tableau.order != name.order || tableau.embedded() != name.embedded) {
      return false;
    }
  }
  return true;
}
static_assert(TableauxAgreeWithNames(), "core/plan/method.h and this file name different methods");

}  // namespace hyperserve
