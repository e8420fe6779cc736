// The algebra of one step, where the right answer is known in closed form.
#include "core/ode/step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/ode/space.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "tests/testing/row_matrix.h"

namespace hyperserve {
namespace {

using testing::CorrectedRowMatrixSpace;
using testing::RowField;
using testing::RowMatrix;
using testing::RowMatrixSpace;

using Corrected = CorrectedRowMatrixSpace;

// z' = -z: one step of order p multiplies by the Taylor polynomial of exp(-eps) of degree p.
const RowField kDecay = [](int64_t, double, std::span<const double> z, std::span<double> dz) {
  for (size_t d = 0; d < z.size(); ++d) dz[d] = -z[d];
};
// z' = z cos s, with z(s) = exp(sin s - sin s0) z(s0).
const RowField kWave = [](int64_t, double s, std::span<const double> z, std::span<double> dz) {
  dz[0] = z[0] * std::cos(s);
};

double DecayPolynomial(double eps, int order) {
  double term = 1.0, sum = 1.0;
  for (int k = 1; k <= order; ++k) sum += term *= -eps / k;
  return sum;
}

TEST(ClassicalStep, IsTheTaylorPolynomialOnALinearField) {
  const RowMatrixSpace space(kDecay);
  const PerRow s = {0.0, 1.0, 2.0}, eps = {0.5, 0.25, 1.0};
  for (const Method method : {Method::kEuler, Method::kMidpoint, Method::kHeun, Method::kRalston,
                              Method::kRk3, Method::kRk4, Method::kRk438}) {
    const Tableau tableau = TableauFor({.method = method});
    const RowMatrix z = RowMatrix::Of({{1.0, -2.0}, {3.0, 0.0}, {0.5, 4.0}});
    const Step<RowMatrixSpace> step = ClassicalStep(space, tableau, s, eps, z);
    EXPECT_EQ(step.slopes.size(), static_cast<size_t>(tableau.solution_stages()));
    for (size_t i = 0; i < z.rows(); ++i) {
      for (size_t d = 0; d < 2; ++d) {
        EXPECT_NEAR(step.z_next.row(i)[d], z.row(i)[d] * DecayPolynomial(eps[i], tableau.order),
                    1e-15);
      }
    }
  }
}

TEST(ClassicalStep, AKnownFirstSlopeIsNotEvaluatedAgain) {
  int calls = 0;
  const RowMatrixSpace space([&](int64_t, double, std::span<const double> z, std::span<double> dz) {
    ++calls;
    dz[0] = -z[0];
  });
  const RowMatrix z = RowMatrix::Of({{2.0}});
  const Tableau& tableau = kRk4Tableau;
  const auto fresh = ClassicalStep(space, tableau, {0.0}, {0.5}, z);
  EXPECT_EQ(calls, 4);
  std::vector<RowMatrix> slopes = {fresh.slopes[0]};
  while (slopes.size() < 4) {
    slopes.push_back(
        NextSlope(space, tableau, {0.0}, {0.5}, z, std::span<const RowMatrix>(slopes)));
  }
  EXPECT_EQ(calls, 7);
  EXPECT_EQ(slopes.back().values, fresh.slopes.back().values);
}

TEST(Psi, IsTheIncrementByTheStepSize) {
  const RowMatrixSpace space(kWave);
  const RowMatrix z = RowMatrix::Of({{2.0}, {-1.0}});
  const PerRow s = {0.3, 0.9}, eps = {0.5, 0.125};
  const auto step = ClassicalStep(space, kRk3Tableau, s, eps, z);
  const RowMatrix psi = Psi<RowMatrixSpace>(space, kRk3Tableau, z, step.slopes);
  for (size_t i = 0; i < z.rows(); ++i) {
    EXPECT_NEAR(z.row(i)[0] + eps[i] * psi.row(i)[0], step.z_next.row(i)[0], 1e-15);
  }
}

// Slopes that agree leave no difference: then psi is the first slope, to the last bit.
TEST(Psi, OfASmallAlphaDoesNotCancel) {
  const RowField constant = [](int64_t, double, std::span<const double>, std::span<double> dz) {
    dz[0] = 0.1;
  };
  const RowMatrixSpace space(constant);
  for (const double alpha : {0.01, 0.013, 0.3}) {
    const Tableau tableau = TableauFor({.method = Method::kAlpha, .alpha = alpha});
    const RowMatrix z = RowMatrix::Of({{0.0}});
    const auto step = ClassicalStep(space, tableau, {0.0}, {1.0}, z);
    EXPECT_EQ(step.z_next.row(0)[0], 0.1) << alpha;
  }
}

TEST(Residual, IsTheScaledLocalError) {
  const RowMatrixSpace space(kDecay);
  const RowMatrix z = RowMatrix::Of({{1.0}, {-3.0}});
  const PerRow s = {0.0, 0.0}, eps = {0.5, 0.25};
  for (const Method method : {Method::kEuler, Method::kHeun}) {
    const Tableau tableau = TableauFor({.method = method});
    RowMatrix z_end = z;
    for (size_t i = 0; i < z.rows(); ++i) z_end.row(i)[0] *= std::exp(-eps[i]);
    const auto step = ClassicalStep(space, tableau, s, eps, z);
    const RowMatrix residual = Residual<RowMatrixSpace>(space, tableau, eps, z, step.slopes, z_end);
    for (size_t i = 0; i < z.rows(); ++i) {
      const double local_error = std::exp(-eps[i]) - DecayPolynomial(eps[i], tableau.order);
      EXPECT_NEAR(residual.row(i)[0],
                  z.row(i)[0] * local_error / std::pow(eps[i], tableau.order + 1), 1e-13);
    }
  }
}

TEST(HypersolvedStep, ACorrectionOfZeroIsTheClassicalStep) {
  const Corrected space(kWave, [](const Corrected::Inputs&, std::span<double> g) { g[0] = 0.0; });
  const RowMatrix z = RowMatrix::Of({{2.0}, {-1.0}});
  const PerRow s = {0.3, 0.9}, eps = {0.5, 0.125};
  EXPECT_EQ(HypersolvedStep(space, kRk3Tableau, s, eps, z, z).z_next.values,
            ClassicalStep(space, kRk3Tableau, s, eps, z).z_next.values);
}

TEST(HypersolvedStep, TheExactResidualMakesTheExactMap) {
  for (const Method method : {Method::kEuler, Method::kMidpoint, Method::kHeun, Method::kRk4}) {
    const Tableau tableau = TableauFor({.method = method});
    const auto truth = [](double s, double eps, double z) {
      return z * std::exp(std::sin(s + eps) - std::sin(s));
    };
    const RowMatrixSpace classical(kWave);
    // g of one row, from the residual of that row alone.
    const Corrected space(kWave, [&](const Corrected::Inputs& in, std::span<double> g) {
      const RowMatrix z = RowMatrix::Of({{in.z[0]}});
      const RowMatrix z_end = RowMatrix::Of({{truth(in.s, in.eps, in.z[0])}});
      const auto step = ClassicalStep(classical, tableau, {in.s}, {in.eps}, z);
      g[0] =
          Residual<RowMatrixSpace>(classical, tableau, {in.eps}, z, step.slopes, z_end).row(0)[0];
    });
    const RowMatrix z = RowMatrix::Of({{2.0}, {-1.0}, {0.5}});
    const PerRow s = {0.3, 0.9, 0.0}, eps = {0.5, 0.125, 1.0};
    const RowMatrix z_next = HypersolvedStep(space, tableau, s, eps, z, z).z_next;
    for (size_t i = 0; i < z.rows(); ++i) {
      EXPECT_NEAR(z_next.row(i)[0], truth(s[i], eps[i], z.row(i)[0]), 1e-15);
    }
  }
}

TEST(HypersolvedStep, TheCorrectionSeesItsInputsAndCountsWithItsPower) {
  const Corrected space(kDecay, [](const Corrected::Inputs& in, std::span<double> g) {
    g[0] = in.z[0] + 10 * in.slope_1[0] + 100 * in.z_first[0] + 1000 * in.s + 1e4 * in.eps;
  });
  const RowMatrix z = RowMatrix::Of({{2.0}}), z_first = RowMatrix::Of({{7.0}});
  const double g = 2.0 - 20.0 + 700.0 + 3000.0 + 5000.0;
  for (const Method method : {Method::kEuler, Method::kHeun, Method::kRk4}) {
    const Tableau tableau = TableauFor({.method = method});
    const double step = HypersolvedStep(space, tableau, {3.0}, {0.5}, z, z_first).z_next.row(0)[0];
    EXPECT_NEAR(step,
                2.0 * DecayPolynomial(0.5, tableau.order) + std::pow(0.5, tableau.order + 1) * g,
                1e-12);
  }
}

TEST(EmbeddedError, ShrinksWithTheOrderOfTheEstimate) {
  const RowMatrixSpace space(kWave);
  for (const Method method :
       {Method::kHeunEuler, Method::kBosh3, Method::kTsit5, Method::kDopri5}) {
    const Tableau tableau = TableauFor({.method = method});
    const auto estimate = [&](double eps) {
      const RowMatrix z = RowMatrix::Of({{1.0}});
      const auto slopes = Slopes(space, tableau, tableau.stages(), {1.2}, {eps}, z);
      Combination<RowMatrixSpace> sum;
      sum.AddSlopes({eps}, tableau.error, slopes);
      return std::abs(sum.Sum(space, space.Zero(z)).row(0)[0]);
    };
    const double eps = tableau.order == 5 ? 0.05 : 0.02;
    EXPECT_GT(estimate(eps / 2), 1e-13) << "rounding would blur the order";
    EXPECT_NEAR(std::log2(estimate(eps) / estimate(eps / 2)), tableau.embedded_order + 1, 0.15)
        << NameOf(method).name;
  }
}

}  // namespace
}  // namespace hyperserve
