// The fit of one table on a small nonlinear field.
#include "training/fit/fit_table.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/engine/readable/tensor_space.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/joins.h"
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
#include "training/fit/truth.h"

namespace hyperserve {
namespace {

// z' = W2 tanh(W1 z): curved enough that few classical steps err.
TableSolves Solves(Coefficients kind, int evaluations) {
  const LayerList layers = {Layer{.kind = LinearLayer{.in = 2, .out = 8, .bias = false}},
                            Layer{.kind = TanhLayer{}},
                            Layer{.kind = LinearLayer{.in = 8, .out = 2, .bias = false}}};
  at::manual_seed(3);
  const TensorMap weights = {{"field.0.weight", 1.5 * at::randn({8, 2})},
                             {"field.2.weight", at::randn({2, 8})}};
  return {.space = {.field = Net::Make(layers, "field", weights).value()},
          .table = {.evaluations = evaluations, .coefficients = kind},
          .state_shape = {2}};
}

GridTruth TruthOf(const TableSolves& solves, const at::Tensor& start, const NodeGrid& grid) {
  const int m = std::max(solves.table.evaluations, 1);
  std::vector<double> depths;
  for (int i = 1; i <= m; ++i) depths.push_back(DepthAt({0, 1}, i, m, grid.share));
  const AdaptivePlan plan{.method = {Method::kDopri5}, .rtol = 1e-6, .atol = 1e-6};
  return {.span = {0, 1},
          .grid = grid,
          .start = start,
          .states = TrueStates(TensorSpace(solves.space), plan, {0, 1}, depths, start).value()};
}

GridTruth TruthOf(const TableSolves& solves, int64_t rows) {
  return TruthOf(solves, at::randn({rows, 2}), kEqualNodes);
}

EndTruth Ends(const GridTruth& truth) { return {.start = truth.start, .end = truth.states.back()}; }

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

absl::StatusOr<FittedTable> StartAndFit(const TableSolves& solves, const GridTruth& truth,
                                        const EndTruth& validation, const TableFit& fit,
                                        RandomStream& stream) {
  return FitTable(solves, truth, validation, fit, StartTable(solves, truth, validation, fit),
                  stream);
}

class FitTableTest : public ::testing::TestWithParam<Coefficients> {};

TEST_P(FitTableTest, BeatsTheClassicalPlansOnRowsThatItDidNotSee) {
  const TableSolves solves = Solves(GetParam(), 3);
  const GridTruth truth = TruthOf(solves, 512), checks = TruthOf(solves, 512),
                  unseen = TruthOf(solves, 512);
  RandomStream stream(1, RandomPurpose::kBatches);
  const FittedTable fitted =
      StartAndFit(
          solves, truth, Ends(checks),
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

TEST(FitTableTest, TheBestGridOfLeastSquaresIsTheStart) {
  const LayerList layers = {
      Layer{.kind = DepthCatLayer{}}, Layer{.kind = LinearLayer{.in = 3, .out = 8, .bias = false}},
      Layer{.kind = TanhLayer{}}, Layer{.kind = LinearLayer{.in = 8, .out = 2, .bias = false}}};
  at::manual_seed(4);
  const TensorMap weights = {{"field.1.weight", 3 * at::randn({8, 3})},
                             {"field.3.weight", 2 * at::randn({2, 8})}};
  const TableSolves solves = {.space = {.field = Net::Make(layers, "field", weights).value()},
                              .table = {.evaluations = 3, .coefficients = Coefficients::kScalar},
                              .state_shape = {2}};
  const GridTruth truth = TruthOf(solves, 256);
  const auto error = [&](const GridTruth& on) {
    const TensorMap tensors = LeastSquaresTensors(TensorSpace(solves.space), solves.table, on);
    return EndError(solves, tensors, Ends(truth)).item<double>();
  };
  TableFit fit{.name = "test", .optimiser = Iterations(1)};
  std::string best = "least squares";
  double least = error(truth);
  std::vector<NodeGrid> grids = FurtherGrids(solves.space.field, solves.state_shape);
  grids.push_back({"u u", [](double u) { return u * u; }});
  for (const NodeGrid& grid : grids) {
    fit.grids.push_back(TruthOf(solves, truth.start, grid));
    const double other = error(fit.grids.back());
    if (other < least) best = absl::StrCat("least squares on ", grid.name);
    least = std::min(least, other);
  }
  ASSERT_NE(best, "least squares") << "this field does not tell the grids apart";
  const FittedTable start = StartTable(solves, truth, Ends(truth), fit);
  EXPECT_EQ(start.start, best);
  EXPECT_EQ(start.error, least);
}

// A rate that ruins every table: what is kept is the start.
TEST(FitTableTest, KeepsTheStartWhereTheOptimiserMakesItWorse) {
  const TableSolves solves = Solves(Coefficients::kScalar, 3);
  const GridTruth truth = TruthOf(solves, 128);
  training::Optimiser optimiser = Iterations(3);
  optimiser.set_rate(50);
  optimiser.set_final_rate(50);
  RandomStream stream(1, RandomPurpose::kBatches);
  const FittedTable fitted =
      StartAndFit(solves, truth, Ends(truth),
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
  const GridTruth truth = TruthOf(solves, 512), checks = TruthOf(solves, 512);
  RandomStream stream(1, RandomPurpose::kBatches);
  TableFit fit{.name = "test", .optimiser = Iterations(60), .check_every = 20, .starts = kOfThree};
  const FittedTable first = StartAndFit(solves, truth, Ends(checks), fit, stream).value();
  ASSERT_LT(first.error, first.start_error) << "a fit that gained nothing tests nothing";
  fit.from = first.tensors;
  fit.optimiser = Iterations(1);
  const FittedTable second = StartAndFit(solves, truth, Ends(checks), fit, stream).value();
  EXPECT_EQ(second.start, "generation");
  EXPECT_NEAR(second.start_error, first.error, 1e-7);
}

// Without evaluations there is the net alone. It starts as the identity.
TEST(FitTableTest, TheReadoutLearnsAFlowMap) {
  TableSolves solves = Solves(Coefficients::kScalar, 0);
  solves.table.inputs = {CorrectionInput::kState0};
  solves.table.net = {Layer{.kind = LinearLayer{.in = 2, .out = 16}}, Layer{.kind = SiluLayer{}},
                      Layer{.kind = LinearLayer{.in = 16, .out = 2}}};
  const GridTruth truth = TruthOf(solves, 512), checks = TruthOf(solves, 256);
  training::Optimiser optimiser = Iterations(200);
  optimiser.set_rate(0.02);
  RandomStream stream(1, RandomPurpose::kBatches);
  const FittedTable fitted =
      StartAndFit(solves, truth, Ends(checks),
                  {.name = "test", .optimiser = optimiser, .check_every = 50}, stream)
          .value();
  EXPECT_EQ(fitted.start, "identity");
  EXPECT_LT(fitted.error, 0.5 * fitted.start_error);
}

// Within some tables a step costs a hundred times what it does within others.
TEST(FitTableTest, AStepIsTimedBeforeTheFit) {
  const auto seconds = [](int evaluations, int width) {
    TableSolves solves = Solves(Coefficients::kScalar, evaluations);
    const LayerList layers = {Layer{.kind = LinearLayer{.in = 2, .out = width, .bias = false}},
                              Layer{.kind = TanhLayer{}},
                              Layer{.kind = LinearLayer{.in = width, .out = 2, .bias = false}}};
    solves.space.field = Net::Make(layers, "field",
                                   {{"field.0.weight", at::randn({width, 2})},
                                    {"field.2.weight", at::randn({2, width}) / width}})
                             .value();
    const GridTruth truth = TruthOf(solves, 512);
    const FittedTable start = StartTable(solves, truth, Ends(truth), {.name = "test"});
    return StepSeconds(solves, start, truth, 512);
  };
  EXPECT_GT(seconds(3, 2048), 3 * seconds(1, 8));
}

// z' = W2 tanh(W1 [z, s]).
TableSolves SolvesWithDepth(at::ScalarType dtype, std::optional<double> reflected_clock_sum) {
  const LayerList layers = {
      Layer{.kind = DepthCatLayer{}}, Layer{.kind = LinearLayer{.in = 3, .out = 8, .bias = false}},
      Layer{.kind = TanhLayer{}}, Layer{.kind = LinearLayer{.in = 8, .out = 2, .bias = false}}};
  at::manual_seed(3);
  const TensorMap weights = {{"field.1.weight", 2.0 * at::randn({8, 3}, dtype)},
                             {"field.3.weight", at::randn({2, 8}, dtype)}};
  TableSolves solves = Solves(Coefficients::kScalar, 3);
  solves.space = {.field = Net::Make(layers, "field", weights).value(),
                  .reflected_clock_sum = reflected_clock_sum};
  return solves;
}

class FittedDepthsTest : public ::testing::TestWithParam<std::optional<double>> {};

TEST_P(FittedDepthsTest, TheErrorIsThatOfTheSolveThatIsServedAndItsSlopeIsRight) {
  const TableSolves solves = SolvesWithDepth(at::kDouble, GetParam());
  const EndTruth truth{.start = at::randn({32, 2}, at::kDouble),
                       .end = at::randn({32, 2}, at::kDouble)};
  TensorMap tensors = TableTensors(ClassicalTable(kOfThree[1], 0, 1), Coefficients::kScalar, {2});
  const auto error_with = [&](const at::Tensor& depths) {
    tensors["table.3.depth"] = depths;
    return EndError(solves, tensors, truth);
  };
  const at::Tensor depths = at::tensor({0.1, 0.4, 0.8}, at::kDouble);
  const TensorSpace space(solves.space);
  const auto bound = BindTable(solves.table, {2}, tensors, {0.1, 0.4, 0.8});
  const at::Tensor served = SolveByTable(space, bound, space.Start(truth.start)).z;
  const at::Tensor of_rows = (served - truth.end).norm(2, 1) / truth.end.norm(2, 1);
  EXPECT_NEAR(error_with(depths).item<double>(), of_rows.mean().item<double>(), 1e-12);

  const at::Tensor leaf = depths.clone().requires_grad_(true);
  error_with(leaf).backward();
  for (int i = 0; i < 3; ++i) {
    constexpr double kStep = 1e-5;
    at::Tensor above = depths.clone(), below = depths.clone();
    above[i] += kStep;
    below[i] -= kStep;
    const double slope = (error_with(above) - error_with(below)).item<double>() / (2 * kStep);
    EXPECT_NEAR(leaf.grad()[i].item<double>(), slope, 1e-8) << i;
    EXPECT_GT(std::abs(slope), 1e-4) << "a depth that changes nothing tests nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(Directions, FittedDepthsTest,
                         ::testing::Values(std::nullopt, std::optional<double>(1.0)));

TEST(FitTableTest, DepthsMoveWithinTheSpanWhereTheFieldReadsThem) {
  for (const bool reads : {false, true}) {
    TableSolves solves = Solves(Coefficients::kMap, 3);
    if (reads) solves.space = SolvesWithDepth(at::kFloat, std::nullopt).space;
    const GridTruth truth = TruthOf(solves, 512);
    training::Optimiser optimiser = Iterations(60);
    optimiser.set_rate(0.02);
    RandomStream stream(1, RandomPurpose::kBatches);
    const FittedTable fitted =
        StartAndFit(solves, truth, Ends(truth),
                    {.name = "test", .optimiser = optimiser, .check_every = 20}, stream)
            .value();
    ASSERT_LT(fitted.error, fitted.start_error);
    const at::Tensor depths = fitted.tensors.at("table.3.depth");
    const at::Tensor uniform = at::tensor({0.0, 1.0 / 3, 2.0 / 3}, at::kFloat);
    EXPECT_EQ(at::allclose(depths, uniform), !reads) << depths;
    EXPECT_GE(depths.min().item<double>(), 0.0);
    EXPECT_LE(depths.max().item<double>(), 1.0);
  }
}

}  // namespace
}  // namespace hyperserve
