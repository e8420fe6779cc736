// The names of the methods. One-step methods repeat the same step; their coefficients stand in
// core/ode/tableau.h, which checks at compile time that the two tables agree. Table methods have
// one table of coefficients for a whole solve: core/ode/solver_table.h.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace hyperserve {

// One-step methods first, in the order of kMethodNames, then table methods in that of
// kTableMethodNames: NameOf and RunsFromTable count on it.
enum class Method {
  kEuler,
  kMidpoint,
  kHeun,
  kRalston,
  kAlpha,  // second order: c2 = alpha, b = (1 - 1/(2 alpha), 1/(2 alpha)), 0 < alpha <= 1
  kRk3,    // Kutta's third-order method
  kRk4,
  kRk438,  // the 3/8 rule
  kHeunEuler,
  kBosh3,
  kTsit5,
  kDopri5,
  kAb2,      // Adams-Bashforth of order 2, started by one midpoint step
  kLearned,  // fitted to a model; the table comes from a file, one for each number of evaluations
};

// All that other parts need to know of a method without its coefficients.
struct MethodName {
  Method method;
  std::string_view name;
  int order;      // p, of the solution that is kept
  bool embedded;  // has an embedded pair, which error control needs
};

// The one-step methods, in the order of Method.
inline constexpr std::array<MethodName, 12> kMethodNames = {{
    {Method::kEuler, "euler", 1, false},
    {Method::kMidpoint, "midpoint", 2, false},
    {Method::kHeun, "heun", 2, false},
    {Method::kRalston, "ralston", 2, false},
    {Method::kAlpha, "alpha", 2, false},
    {Method::kRk3, "rk3", 3, false},
    {Method::kRk4, "rk4", 4, false},
    {Method::kRk438, "rk4_38", 4, false},
    {Method::kHeunEuler, "heun_euler", 2, true},
    {Method::kBosh3, "bosh3", 3, true},
    {Method::kTsit5, "tsit5", 5, true},
    {Method::kDopri5, "dopri5", 5, true},
}};

// The table methods, which follow them in Method.
inline constexpr std::array<MethodName, 2> kTableMethodNames = {{
    {Method::kAb2, "ab2", 2, false},
    {Method::kLearned, "learned", 0, false},
}};

// Whether a method has one table for a whole solve. All functions here are pure; any thread.
constexpr bool RunsFromTable(Method method) {
  return static_cast<size_t>(method) >= kMethodNames.size();
}

// The entry of a method, of static storage.
constexpr const MethodName& NameOf(Method method) {
  const size_t index = static_cast<size_t>(method);
  return RunsFromTable(method) ? kTableMethodNames[index - kMethodNames.size()]
                               : kMethodNames[index];
}
std::optional<Method> MethodFromName(std::string_view name);  // nullopt: no such method

// Evaluations of f that one table makes at most: n of them take n (n + 1) / 2 coefficients.
inline constexpr int kTableEvaluationsMax = 64;

// A method and, for kAlpha only, its parameter (0 elsewhere).
struct MethodChoice {
  Method method = Method::kEuler;
  double alpha = 0.0;
  bool operator==(const MethodChoice&) const = default;
};

}  // namespace hyperserve
