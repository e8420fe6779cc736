// Error control on the problems of nonstiff_problems.h, against Boost.odeint's controlled dopri5 as
// it is used by default (its own error norm, its own controller; first step 1e-3, rtol = atol). The
// truth is a Fehlberg 7(8) solve in long double at 1e-17.
#include <gtest/gtest.h>

#include <boost/numeric/odeint.hpp>
#include <cmath>
#include <vector>

#include "core/ode/solve_result.h"
#include "core/ode/solver.h"
#include "core/ode/tableau.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/core/ode/nonstiff_problems.h"
#include "tests/testing/row_matrix.h"
#include "tests/testing/solve_rows.h"

namespace hyperserve {
namespace {

namespace odeint = boost::numeric::odeint;
using testing::NonstiffProblem;
using testing::NonstiffProblems;
using testing::RowMatrix;
using testing::RowMatrixSpace;

constexpr double kBoostFirstStep = 1e-3;

// The end of a Boost solve with rtol = atol.
template <class Stepper, class Real>
std::vector<Real> SolveByBoost(const NonstiffProblem<Real>& problem, Real tolerance) {
  std::vector<Real> z = problem.start;
  const auto field = [&](const std::vector<Real>& state, std::vector<Real>& slope, Real s) {
    problem.field(s, state, slope);
  };
  odeint::integrate_adaptive(odeint::make_controlled<Stepper>(tolerance, tolerance), field, z,
                             Real(0), problem.end, Real(kBoostFirstStep));
  return z;
}

std::vector<double> SolveByUs(const NonstiffProblem<double>& problem, double tolerance) {
  const RowMatrixSpace space([&](int64_t, double s, std::span<const double> z,
                                 std::span<double> dz) { problem.field(s, z, dz); });
  const SolveResult<RowMatrix> result = testing::Solve(
      space,
      {.tableau = kDopri5Tableau,
       .control = ErrorControl{.rtol = tolerance, .atol = tolerance, .max_steps = 100000},
       .s1 = problem.end},
      RowMatrix::Of({problem.start}));
  EXPECT_EQ(result.status[0], RowStatus::kConverged);
  return result.state.values;
}

struct Errors {
  double ours = 0.0, boosts = 0.0;
};

// errors[problem][k]: at the tolerance 10^-k, the largest absolute error at the end.
std::vector<std::vector<Errors>> Measure() {
  using Narrow = std::vector<double>;
  using Wide = std::vector<long double>;
  const auto problems = NonstiffProblems<double>();
  const auto wide_problems = NonstiffProblems<long double>();
  std::vector<std::vector<Errors>> errors(problems.size(), std::vector<Errors>(12));
  for (size_t p = 0; p < problems.size(); ++p) {
    const Wide truth =
        SolveByBoost<odeint::runge_kutta_fehlberg78<Wide, long double>>(wide_problems[p], 1e-17L);
    const auto distance = [&](const Narrow& z) {
      long double worst = 0;
      for (size_t d = 0; d < z.size(); ++d) worst = std::max(worst, std::abs(z[d] - truth[d]));
      return static_cast<double>(worst);
    };
    for (int k = 3; k <= 11; ++k) {
      const double tolerance = std::pow(10.0, -k);
      errors[p][static_cast<size_t>(k)] = {
          .ours = distance(SolveByUs(problems[p], tolerance)),
          .boosts =
              distance(SolveByBoost<odeint::runge_kutta_dopri5<Narrow>>(problems[p], tolerance))};
    }
  }
  return errors;
}

class Nonstiff : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { errors_ = Measure(); }
  static std::string Name(size_t p) { return NonstiffProblems<double>()[p].name; }
  static inline std::vector<std::vector<Errors>> errors_;
};

TEST_F(Nonstiff, TightTolerancesAreAtMostTwiceBoosts) {
  for (size_t p = 0; p < errors_.size(); ++p) {
    for (size_t k = 8; k <= 11; ++k) {
      EXPECT_LE(errors_[p][k].ours, 2.0 * errors_[p][k].boosts) << Name(p) << " at 1e-" << k;
    }
  }
}

TEST_F(Nonstiff, LooseTolerancesMatchBoostOnAverage) {
  double log_sum = 0.0;
  int count = 0;
  for (size_t p = 0; p < errors_.size(); ++p) {
    for (size_t k = 3; k <= 7; ++k) {
      const double ratio = errors_[p][k].ours / errors_[p][k].boosts;
      EXPECT_LE(ratio, 20.0) << Name(p) << " at 1e-" << k;
      log_sum += std::log(ratio);
      ++count;
    }
  }
  EXPECT_LE(std::exp(log_sum / count), 1.5);
}

TEST_F(Nonstiff, TheErrorFollowsTheTolerance) {
  for (size_t p = 0; p < errors_.size(); ++p) {
    EXPECT_LT(errors_[p][10].ours, 1e-3 * errors_[p][6].ours) << Name(p);
  }
}

}  // namespace
}  // namespace hyperserve
