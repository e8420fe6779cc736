// Every method converges with the order it claims, on a field that depends on s and on one that
// mixes components.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/ode/solve_result.h"
#include "core/ode/solver.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/testing/row_matrix.h"
#include "tests/testing/solve_rows.h"

namespace hyperserve {
namespace {

using testing::RowField;
using testing::RowMatrix;
using testing::RowMatrixSpace;

// Euclidean distance to the exact answer after `steps` equal steps over [0, 1].
double FixedError(const MethodChoice& method, int64_t steps, const RowField& field,
                  const std::vector<double>& start, const std::vector<double>& exact) {
  const RowMatrixSpace space(field);
  const SolveResult<RowMatrix> result =
      testing::Solve(space, {.tableau = TableauFor(method), .control = FixedSteps{.steps = steps}},
                     RowMatrix::Of({start}));
  EXPECT_EQ(result.status[0], RowStatus::kConverged);
  double sum = 0.0;
  for (size_t d = 0; d < exact.size(); ++d) {
    sum += std::pow(result.state.row(0)[d] - exact[d], 2);
  }
  return std::sqrt(sum);
}

class SolverOrder : public ::testing::TestWithParam<MethodChoice> {
 protected:
  // From the errors at K and 2 K.
  double ObservedOrder(const RowField& field, const std::vector<double>& start,
                       const std::vector<double>& exact) const {
    const int64_t steps = NameOf(GetParam().method).order == 5 ? 16 : 64;
    const double coarse = FixedError(GetParam(), steps, field, start, exact);
    const double fine = FixedError(GetParam(), 2 * steps, field, start, exact);
    EXPECT_GT(fine, 1e-12) << "rounding would blur the order";
    return std::log2(coarse / fine);
  }
};

TEST_P(SolverOrder, FieldThatDependsOnDepth) {
  const RowField field = [](int64_t, double s, std::span<const double> z, std::span<double> dz) {
    dz[0] = z[0] * std::cos(s);
  };
  const int order = NameOf(GetParam().method).order;
  EXPECT_GE(ObservedOrder(field, {1.0}, {std::exp(std::sin(1.0))}), order - 0.1);
}

TEST_P(SolverOrder, Rotation) {
  const RowField field = [](int64_t, double, std::span<const double> z, std::span<double> dz) {
    dz[0] = z[1];
    dz[1] = -z[0];
  };
  const int order = NameOf(GetParam().method).order;
  EXPECT_NEAR(
      ObservedOrder(field, {1.0, 0.5},
                    {std::cos(1.0) + 0.5 * std::sin(1.0), -std::sin(1.0) + 0.5 * std::cos(1.0)}),
      order, order == 5 ? 0.25 : 0.1);
}

std::vector<MethodChoice> EveryMethod() {
  std::vector<MethodChoice> choices;
  for (const MethodName& name : kMethodNames) {
    if (name.method != Method::kAlpha) choices.push_back({.method = name.method});
  }
  for (const double alpha : {0.25, 0.6, 0.75, 1.0}) {
    choices.push_back({.method = Method::kAlpha, .alpha = alpha});
  }
  return choices;
}

INSTANTIATE_TEST_SUITE_P(Methods, SolverOrder, ::testing::ValuesIn(EveryMethod()),
                         [](const auto& info) {
                           const MethodChoice& choice = info.param;
                           std::string name(NameOf(choice.method).name);
                           if (choice.method != Method::kAlpha) return name;
                           return name + std::to_string(static_cast<int>(100 * choice.alpha));
                         });

}  // namespace
}  // namespace hyperserve
