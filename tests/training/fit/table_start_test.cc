// Least squares on linear fields, whose true states are known in closed form.
#include "training/fit/table_start.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/engine/readable/tensor_space.h"
#include "core/io/tensor.h"
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
#include "training/fit/fit_table.h"
#include "training/fit/truth.h"

namespace hyperserve {
namespace {

constexpr Coefficients kKinds[] = {Coefficients::kScalar, Coefficients::kChannel,
                                   Coefficients::kMap};
constexpr double kExact = 1e-5;  // coefficients are float32

TableSolves Solves(const Layer& layer, const at::Tensor& weight, Coefficients kind, int evaluations,
                   const Shape& state) {
  const Net field = Net::Make({layer}, "field", {{"field.0.weight", weight}}).value();
  return {.space = {.field = field},
          .table = {.evaluations = evaluations, .coefficients = kind},
          .state_shape = state};
}

TableSolves Linear(const at::Tensor& matrix, Coefficients kind, int evaluations) {
  const Layer layer = {.kind = LinearLayer{.in = 2, .out = 2, .bias = false}};
  return Solves(layer, matrix, kind, evaluations, {2});
}

at::Tensor Matrix(std::vector<float> values) { return at::tensor(values).view({2, 2}); }

at::Tensor Rows(int64_t count) {
  at::manual_seed(1);
  return at::randn({count, 2}) + 0.5;
}

// z' = A z on [0, 1].
GridTruth Truth(const at::Tensor& matrix, int evaluations, const at::Tensor& start,
                const NodeGrid& grid = kEqualNodes) {
  GridTruth truth{.span = {0, 1}, .grid = grid, .start = start, .states = {}};
  for (int i = 1; i <= evaluations; ++i) {
    const at::Tensor flow =
        at::matrix_exp(matrix * DepthAt(truth.span, i, evaluations, grid.share));
    truth.states.push_back(at::matmul(start, flow.t()));
  }
  return truth;
}

double Error(const TableSolves& solves, const TensorMap& tensors, const GridTruth& truth) {
  return EndError(solves, tensors, {.start = truth.start, .end = truth.states.back()})
      .item<double>();
}

// A classical table as the tensors of these solves, float32.
TensorMap Started(const SolverTable<double>& table, const TableSolves& solves) {
  TensorMap tensors = TableTensors(table, solves.table.coefficients, solves.state_shape);
  for (auto& [name, tensor] : tensors) tensor = tensor.to(at::kFloat);
  return tensors;
}

TensorMap LeastSquares(const TableSolves& solves, const GridTruth& truth) {
  return LeastSquaresTensors(TensorSpace(solves.space), solves.table, truth);
}

// By Cayley and Hamilton e^A is a combination of 1 and A, so one evaluation is enough.
TEST(TableStartTest, LeastSquaresSolvesALinearFieldInOneEvaluation) {
  const at::Tensor matrix = Matrix({0.3f, -1.7f, 1.2f, -0.4f});
  const GridTruth truth = Truth(matrix, 1, Rows(64));
  for (const Coefficients kind : kKinds) {
    const TableSolves solves = Linear(matrix, kind, 1);
    EXPECT_LT(Error(solves, LeastSquares(solves, truth), truth), kExact) << CoefficientsName(kind);
    const SolverTable<double> euler =
        ClassicalTable({.method = {Method::kEuler}, .steps = 1}, 0, 1);
    EXPECT_GT(Error(solves, Started(euler, solves), truth), 0.1);
  }
}

TEST(TableStartTest, EveryStateOnTheWayIsFitted) {
  const at::Tensor matrix = Matrix({0.3f, -1.7f, 1.2f, -0.4f});
  const GridTruth truth = Truth(matrix, 3, Rows(64));
  const TableSolves solves = Linear(matrix, Coefficients::kScalar, 3);
  const TensorMap tensors = LeastSquares(solves, truth);
  EXPECT_LT(Error(solves, tensors, truth), kExact);
  EXPECT_TRUE(at::allclose(tensors.at("table.3.depth"), at::tensor({0.0f, 1.0f / 3, 2.0f / 3})));
  EXPECT_EQ(tensors.at("table.3.slopes").sizes(), at::IntArrayRef({6}));
}

TEST(TableStartTest, NodesLieOnTheGridOfTheTruth) {
  const at::Tensor matrix = Matrix({0.3f, -1.7f, 1.2f, -0.4f});
  const GridTruth truth = Truth(matrix, 3, Rows(64), {"u u", [](double u) { return u * u; }});
  const TableSolves solves = Linear(matrix, Coefficients::kScalar, 3);
  const TensorMap tensors = LeastSquares(solves, truth);
  EXPECT_LT(Error(solves, tensors, truth), kExact);
  EXPECT_TRUE(at::allclose(tensors.at("table.3.depth"), at::tensor({0.0f, 1 / 9.0f, 4 / 9.0f})));
}

TEST(TableStartTest, FurtherGridsRiseFromTheStartToTheEndAndAreDenserThere) {
  const Layer linear = {.kind = LinearLayer{.in = 3, .out = 2, .bias = false}};
  const Net field = Net::Make({Layer{.kind = DepthCatLayer{}}, linear}, "field",
                              {{"field.1.weight", at::zeros({2, 3})}})
                        .value();
  const std::vector<NodeGrid> grids = FurtherGrids(field, {2});
  ASSERT_FALSE(grids.empty());
  for (const NodeGrid& grid : grids) {
    const std::vector<double> depths = Depths({16}, {-1, 1}, grid.share);
    ASSERT_EQ(depths.size(), 17u) << grid.name;
    EXPECT_EQ(depths.front(), -1);
    EXPECT_EQ(depths.back(), 1);
    EXPECT_LT(depths[16] - depths[15], 0.5 * (depths[1] - depths[0])) << grid.name;
  }
  EXPECT_TRUE(FurtherGrids(field, {2, 4, 4}).empty()) << "images";
  EXPECT_TRUE(FurtherGrids(Linear(Rows(2), Coefficients::kMap, 2).space.field, {2}).empty())
      << "a field that does not read the depth";
}

// A shift that the slopes cannot tell: the offset is the answer, and the slopes of z' = 0, which
// determine no coefficient, get the smallest one.
TEST(TableStartTest, TheOffsetTakesWhatIsTheSameForAllRows) {
  const at::Tensor start = Rows(16), shift = at::tensor({0.25f, -3.0f});
  const GridTruth truth{.span = {0, 1}, .start = start, .states = {start + shift}};
  for (const Coefficients kind : kKinds) {
    const TableSolves solves = Linear(at::zeros({2, 2}), kind, 1);
    const TensorMap tensors = LeastSquares(solves, truth);
    EXPECT_TRUE(at::allclose(tensors.at("table.1.offset")[0], shift, 0, kExact));
    EXPECT_EQ(tensors.at("table.1.slopes").abs().max().item<double>(), 0.0);
    EXPECT_LT(Error(solves, tensors, truth), kExact) << CoefficientsName(kind);
  }
}

// Images: channels are the second dimension, and every pixel is a line of the regression.
TEST(TableStartTest, ImagesHaveOneRegressionForAllPixels) {
  const at::Tensor channels = Matrix({-1.0f, 0.4f, 0.1f, -0.6f});
  at::manual_seed(2);
  const at::Tensor start = at::randn({5, 2, 3, 4});
  const at::Tensor end = at::conv2d(start, at::matrix_exp(channels).view({2, 2, 1, 1}));
  const GridTruth truth{.span = {0, 1}, .start = start, .states = {end}};
  const Layer layer = {.kind = Conv2dLayer{.in = 2, .out = 2, .kernel = 1, .bias = false}};
  for (const Coefficients kind : kKinds) {
    const TableSolves solves = Solves(layer, channels.view({2, 2, 1, 1}), kind, 1, {2, 3, 4});
    EXPECT_LT(Error(solves, LeastSquares(solves, truth), truth), kExact) << CoefficientsName(kind);
  }
}

TEST(TableStartTest, AClassicalTableOfAnyKindIsTheSamePlan) {
  const at::Tensor matrix = Matrix({-0.2f, 0.9f, -0.7f, 0.1f});
  const at::Tensor start = Rows(8), slope = at::matmul(start, matrix.t());
  const SolverTable<double> heun = ClassicalTable({.method = {Method::kHeun}, .steps = 1}, 0, 1);
  // z + A z + A^2 z / 2
  const at::Tensor end = start + slope + 0.5 * at::matmul(slope, matrix.t());
  for (const Coefficients kind : kKinds) {
    const TableSolves solves = Linear(matrix, kind, 2);
    const TensorMap tensors = Started(heun, solves);
    EXPECT_LT(EndError(solves, tensors, {.start = start, .end = end}).item<double>(), 1e-6)
        << CoefficientsName(kind);
  }
}

}  // namespace
}  // namespace hyperserve
