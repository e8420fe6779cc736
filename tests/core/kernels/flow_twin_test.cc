// The twin of the fused kernel against the solvers of core/ode.
#include "core/kernels/flow/flow_twin.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "core/kernels/flow/flow_model.h"
#include "core/ode/solve_options.h"
#include "core/ode/solver.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/step_control.h"
#include "tests/core/kernels/flow_nets.h"
#include "tests/testing/row_matrix.h"
#include "tests/testing/solve_rows.h"

namespace hyperserve {
namespace {

using kernels::FlowActivation;
using kernels::FlowInput;
using kernels::FlowModel;
using kernels::FlowNet;
using kernels::FlowPlan;
using kernels::TwinField;
using kernels::TwinLogDensity;
using kernels::TwinSolve;
using testing::CorrectedRowMatrixSpace;
using testing::RandomFlowNet;
using testing::RowMatrix;

// A net of one hidden layer of tanh, written out.
void HiddenTanh(const FlowNet& net, const std::vector<double>& x, std::span<double> y) {
  const kernels::FlowLayer &first = net.layers[0], &last = net.layers[1];
  const size_t hidden = static_cast<size_t>(first.outputs);
  for (size_t i = 0; i < y.size(); ++i) y[i] = last.bias[i];
  for (size_t h = 0; h < hidden; ++h) {
    double sum = first.bias[h];
    for (size_t j = 0; j < x.size(); ++j) sum += first.weight[h * x.size() + j] * x[j];
    for (size_t i = 0; i < y.size(); ++i) y[i] += last.weight[i * hidden + h] * std::tanh(sum);
  }
}

TEST(TwinField, IsTheNetWrittenOut) {
  FlowModel model{.dimensions = 2,
                  .field = RandomFlowNet(FlowActivation::kTanh,
                                         {FlowInput::kDepth, FlowInput::kState}, {3, 5, 2}, 1),
                  .correction = {}};
  std::vector<double> expected(2);
  HiddenTanh(model.field, {0.3, -1.0, 2.0}, expected);
  const std::vector<double> found = TwinField(model, 0.3, std::vector<double>{-1.0, 2.0});
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(found[i], expected[i], 1e-14);
}

// log|det| of the map by central differences.
double DifferencedLogDet(const FlowModel& model, const FlowPlan& plan,
                         const std::vector<double>& z) {
  constexpr double kStep = 1e-5;
  std::vector<std::vector<double>> columns;
  for (size_t i = 0; i < z.size(); ++i) {
    std::vector<double> above = z, below = z;
    above[i] += kStep;
    below[i] -= kStep;
    std::vector<double> column = TwinSolve(model, plan, above);
    const std::vector<double> low = TwinSolve(model, plan, below);
    for (size_t j = 0; j < z.size(); ++j) column[j] = (column[j] - low[j]) / (2.0 * kStep);
    columns.push_back(column);
  }
  if (z.size() == 1) return std::log(std::fabs(columns[0][0]));
  return std::log(std::fabs(columns[0][0] * columns[1][1] - columns[0][1] * columns[1][0]));
}

double LogNormal(const std::vector<double>& z) {
  double sum = 0.0;
  for (const double x : z) sum -= 0.5 * (x * x + std::log(2.0 * std::numbers::pi));
  return sum;
}

TEST(TwinLogDensity, OfStepMapsIsTheDeterminant) {
  for (const FlowActivation activation : {FlowActivation::kSoftplus, FlowActivation::kTanh,
                                          FlowActivation::kSilu, FlowActivation::kRectifier}) {
    for (const int dimensions : {1, 2}) {
      const FlowModel model{
          .dimensions = dimensions,
          .field = RandomFlowNet(activation, {FlowInput::kState}, {dimensions, 7, dimensions}, 3),
          .correction = RandomFlowNet(activation, {FlowInput::kSlope1, FlowInput::kState0},
                                      {2 * dimensions, 5, dimensions}, 4)};
      FlowPlan plan{.tableau = TableauFor({.method = Method::kHeun}),
                    .steps = 2,
                    .hypersolved = true,
                    .against = true,
                    .density = kernels::FlowDensity::kStepMap};
      const std::vector<double> z = dimensions == 1 ? std::vector{0.3} : std::vector{0.3, -0.7};
      const double change = DifferencedLogDet(model, plan, z);
      EXPECT_NEAR(TwinLogDensity(model, plan, z), LogNormal(z) - change, 1e-8);
      plan.to_data = false;
      EXPECT_NEAR(TwinLogDensity(model, plan, z), LogNormal(TwinSolve(model, plan, z)) + change,
                  1e-8);
    }
  }
}

TEST(TwinLogDensity, DivergenceAndStepMapMeetAsStepsShrink) {
  const FlowModel model{
      .dimensions = 2,
      .field = RandomFlowNet(FlowActivation::kSoftplus, {FlowInput::kState, FlowInput::kDepth},
                             {3, 9, 2}, 5),
      .correction = {}};
  FlowPlan plan{.tableau = kRk4Tableau,
                .steps = 64,
                .against = true,
                .density = kernels::FlowDensity::kStepMap};
  const std::vector<double> z = {1.1, 0.2};
  const double map = TwinLogDensity(model, plan, z);
  plan.density = kernels::FlowDensity::kDivergence;
  EXPECT_NEAR(TwinLogDensity(model, plan, z), map, 1e-7);
}

TEST(TwinActivation, IsWhatItsNameSays) {
  for (const double x : {-700.0, -1.0, 0.0, 0.5, 700.0}) {
    const double sigmoid = 1.0 / (1.0 + std::exp(-x));
    EXPECT_NEAR(kernels::TwinActivation(FlowActivation::kSoftplus, x, 0.0),
                x > 500.0 ? x : std::log1p(std::exp(x)), 1e-13);
    EXPECT_NEAR(kernels::TwinActivation(FlowActivation::kSilu, x, 0.0), x * sigmoid, 1e-13);
    EXPECT_EQ(kernels::TwinActivation(FlowActivation::kRectifier, x, 0.25), x > 0 ? x : x / 4);
  }
}

// In both directions, with everything that a correction can read but the second slope.
TEST(TwinSolve, IsTheSolversOwn) {
  const FlowModel model{
      .dimensions = 2,
      .field = RandomFlowNet(FlowActivation::kSoftplus, {FlowInput::kState, FlowInput::kDepth},
                             {3, 8, 8, 2}, 2),
      .correction = RandomFlowNet(FlowActivation::kTanh,
                                  {FlowInput::kState, FlowInput::kSlope1, FlowInput::kState0,
                                   FlowInput::kStep, FlowInput::kDepth},
                                  {8, 6, 2}, 3)};
  for (const bool against : {false, true}) {
    for (const Method method : {Method::kEuler, Method::kHeun, Method::kRk4, Method::kDopri5}) {
      const FlowPlan plan{.tableau = TableauFor({.method = method}),
                          .steps = 3,
                          .hypersolved = true,
                          .against = against,
                          .s0 = 0.5,
                          .s1 = 2.0};
      const CorrectedRowMatrixSpace space(
          [&](int64_t, double s, std::span<const double> z, std::span<double> dz) {
            const std::vector<double> f = TwinField(model, against ? 2.5 - s : s, z);
            for (size_t i = 0; i < 2; ++i) dz[i] = against ? -f[i] : f[i];
          },
          [&](const CorrectedRowMatrixSpace::Inputs& in, std::span<double> g) {
            HiddenTanh(*model.correction,
                       {in.z[0], in.z[1], in.slope_1[0], in.slope_1[1], in.z_first[0],
                        in.z_first[1], in.eps, in.s},
                       g);
          });
      const RowMatrix expected = testing::Solve(space,
                                                {.tableau = plan.tableau,
                                                 .control = FixedSteps{.steps = plan.steps},
                                                 .hypersolved = true,
                                                 .s0 = plan.s0,
                                                 .s1 = plan.s1},
                                                RowMatrix::Of({{0.7, -1.2}}))
                                     .state;
      const std::vector<double> found = TwinSolve(model, plan, std::vector<double>{0.7, -1.2});
      for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(found[i], expected.row(0)[i], 1e-12);
    }
  }
}

}  // namespace
}  // namespace hyperserve
