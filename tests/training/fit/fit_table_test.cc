// The fit of one table on a small nonlinear field.
#include "training/fit/fit_table.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "core/engine/readable/tensor_space.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/net.h"
#include "core/model/net/table.h"
#include "core/model/spec/spec.h"
#include "core/ode/solver_table.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "training/data/random.h"
#include "training/data/recipe.pb.h"
#include "training/fit/fit_hypersolver.h"
#include "training/fit/table_start.h"
#include "training/fit/trajectory.h"

namespace hyperserve {
namespace {

// z' = W2 tanh(W1 z): curved enough that few classical steps err.
TableSolves Solves(Coefficients kind, int evaluations) {
  const LayerList layers = {Layer{.kind = LinearLayer{.in = 2, .out = 8, .bias = false}},
                            Layer{.kind = TanhLayer{}},
                            Layer{.kind = LinearLayer{.in = 8, .out = 2, .bias = false}}};
  torch::manual_seed(3);
  const TensorMap weights = {{"field.0.weight", 1.5 * at::randn({8, 2})},
                             {"field.2.weight", at::randn({2, 8})}};
  return {.space = {.field = Net::Make(layers, "field", weights).value()},
          .table = {.evaluations = evaluations, .coefficients = kind},
          .state_shape = {2}};
}

UniformTruth TruthOf(const TableSolves& solves, int64_t rows) {
  const int m = std::max(solves.table.evaluations, 1);
  std::vector<double> depths;
  for (int i = 1; i <= m; ++i) depths.push_back(static_cast<double>(i) / m);
  const at::Tensor start = at::randn({rows, 2});
  const AdaptivePlan plan{.method = {Method::kDopri5}, .rtol = 1e-6, .atol = 1e-6};
  return {.span = {0, 1},
          .start = start,
          .states = TrueStates(TensorSpace(solves.space), plan, {0, 1}, depths, start).value()};
}

EndTruth Ends(const UniformTruth& truth) {
  return {.start = truth.start, .end = truth.states.back()};
}

training::Optimiser Iterations(int count) {
  training::Optimiser optimiser;
  optimiser.set_iterations(count);
  optimiser.set_batch(128);
  optimiser.set_rate(0.003);
  optimiser.set_clip_norm(1);
  return optimiser;
}

const std::vector<FixedPlan> kOfThree = {{.method = {Method::kEuler}, .steps = 3},
                                         {.method = {Method::kRk3}, .steps = 1},
                                         {.method = {Method::kAb2}, .steps = 2}};

// A classical table as the tensors of these solves, float32.
TensorMap Started(const SolverTable<double>& table, const TableSolves& solves) {
  TensorMap tensors = TableTensors(table, solves.table.coefficients, solves.state_shape);
  for (auto& [name, tensor] : tensors) tensor = tensor.to(at::kFloat);
  return tensors;
}

double ClassicalError(const TableSolves& solves, const EndTruth& truth) {
  double least = std::numeric_limits<double>::infinity();
  for (const FixedPlan& plan : kOfThree) {
    const TensorMap tensors = Started(ClassicalTable(plan, 0, 1), solves);
    least = std::min(least, EndError(solves, tensors, truth).item<double>());
  }
  return least;
}

class FitTableTest : public ::testing::TestWithParam<Coefficients> {};

TEST_P(FitTableTest, BeatsTheClassicalPlansOnRowsThatItDidNotSee) {
  const TableSolves solves = Solves(GetParam(), 3);
  const UniformTruth truth = TruthOf(solves, 512), checks = TruthOf(solves, 512),
                     unseen = TruthOf(solves, 512);
  RandomStream stream(1, RandomPurpose::kBatches);
  const FittedTable fitted =
      FitTable(solves, truth, Ends(checks),
               {.name = "test", .optimiser = Iterations(60), .check_every = 20, .starts = kOfThree},
               stream)
          .value();
  EXPECT_LT(EndError(solves, fitted.tensors, Ends(unseen)).item<double>(),
            kClaimRatio * ClassicalError(solves, Ends(unseen)));
  EXPECT_LE(fitted.error, fitted.start_error);
}

INSTANTIATE_TEST_SUITE_P(Kinds, FitTableTest,
                         ::testing::Values(Coefficients::kScalar, Coefficients::kChannel,
                                           Coefficients::kMap));

// A rate that ruins every table: what is kept is the start.
TEST(FitTableTest, KeepsTheStartWhereTheOptimiserMakesItWorse) {
  const TableSolves solves = Solves(Coefficients::kScalar, 3);
  const UniformTruth truth = TruthOf(solves, 128);
  training::Optimiser optimiser = Iterations(3);
  optimiser.set_rate(50);
  optimiser.set_final_rate(50);
  RandomStream stream(1, RandomPurpose::kBatches);
  const FittedTable fitted =
      FitTable(solves, truth, Ends(truth),
               {.name = "test", .optimiser = optimiser, .check_every = 1, .starts = kOfThree},
               stream)
          .value();
  EXPECT_EQ(fitted.best_iteration, 0);
  EXPECT_EQ(fitted.error, fitted.start_error);
  EXPECT_NEAR(EndError(solves, fitted.tensors, Ends(truth)).item<double>(), fitted.error, 1e-7);
  EXPECT_LE(fitted.error, ClassicalError(solves, Ends(truth)));
}

TEST(FitTableTest, ARefreshStartsFromTheEarlierTensors) {
  const TableSolves solves = Solves(Coefficients::kMap, 3);
  const UniformTruth truth = TruthOf(solves, 512), checks = TruthOf(solves, 512);
  RandomStream stream(1, RandomPurpose::kBatches);
  TableFit fit{.name = "test", .optimiser = Iterations(60), .check_every = 20, .starts = kOfThree};
  const FittedTable first = FitTable(solves, truth, Ends(checks), fit, stream).value();
  ASSERT_LT(first.error, first.start_error) << "a fit that gained nothing tests nothing";
  fit.from = first.tensors;
  fit.optimiser = Iterations(1);
  const FittedTable second = FitTable(solves, truth, Ends(checks), fit, stream).value();
  EXPECT_EQ(second.start, "generation");
  EXPECT_NEAR(second.start_error, first.error, 1e-7);
}

// Without evaluations there is the net alone. It starts as the identity.
TEST(FitTableTest, TheReadoutLearnsAFlowMap) {
  TableSolves solves = Solves(Coefficients::kScalar, 0);
  solves.table.inputs = {CorrectionInput::kState0};
  solves.table.net = {Layer{.kind = LinearLayer{.in = 2, .out = 16}}, Layer{.kind = SiluLayer{}},
                      Layer{.kind = LinearLayer{.in = 16, .out = 2}}};
  const UniformTruth truth = TruthOf(solves, 512), checks = TruthOf(solves, 256);
  training::Optimiser optimiser = Iterations(200);
  optimiser.set_rate(0.02);
  RandomStream stream(1, RandomPurpose::kBatches);
  const FittedTable fitted =
      FitTable(solves, truth, Ends(checks),
               {.name = "test", .optimiser = optimiser, .check_every = 50}, stream)
          .value();
  EXPECT_EQ(fitted.start, "identity");
  EXPECT_LT(fitted.error, 0.5 * fitted.start_error);
}

}  // namespace
}  // namespace hyperserve
