#include "training/fit/flow_matching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/data/dataset.h"
#include "training/data/density.h"
#include "training/data/random.h"
#include "training/data/recipe.h"
#include "training/data/recipe.pb.h"
#include "training/fit/fit_model.h"
#include "training/measure/measure.h"

namespace hyperserve {
namespace {

at::Tensor Points(const char* name, uint64_t seed, int64_t rows) {
  std::vector<float> values = Density::Named(name)->Draw(seed, 0, rows);
  return at::tensor(values).view({rows, 2});
}

TEST(FlowMatchingTest, PathsAreStraightThroughTheSpan) {
  const at::Tensor start = at::tensor({0.0f, 0.0f, 1.0f, 2.0f}).view({2, 2});
  const at::Tensor end = at::tensor({4.0f, 8.0f, 1.0f, 0.0f}).view({2, 2});
  const PathPoints points = PointsOnPaths(start, end, at::tensor({0.25f, 0.5f}), {1, 3});
  EXPECT_TRUE(at::equal(points.depth, at::tensor({1.5f, 2.0f})));
  EXPECT_TRUE(at::equal(points.state, at::tensor({1.0f, 2.0f, 1.0f, 1.0f}).view({2, 2})));
  EXPECT_TRUE(at::equal(points.velocity, at::tensor({2.0f, 4.0f, 0.0f, -1.0f}).view({2, 2})));
}

TEST(FlowMatchingTest, LossIsTheMeanSquaredDistance) {
  const at::Tensor velocity = at::tensor({3.0f, 4.0f, 0.0f, 1.0f}).view({2, 2});
  EXPECT_NEAR(VelocityLoss(at::zeros({2, 2}), velocity).item<double>(), 13.0, 1e-6);
  EXPECT_EQ(VelocityLoss(velocity, velocity).item<double>(), 0.0);
}

double MeanSquaredLength(const at::Tensor& start, const at::Tensor& end) {
  return (end - start).square().sum(1).mean().item<double>();
}

TEST(FlowMatchingTest, PairingShortensThePathsAndKeepsThePoints) {
  constexpr int64_t kRows = 500;
  const at::Tensor start = Points("gaussians", 1, kRows), end = Points("rings", 2, kRows);
  RandomStream stream(3, RandomPurpose::kBatches);
  const std::vector<int64_t> order = ShorterPairing(start, end, 200, stream);
  std::vector<int64_t> sorted = order, all(kRows);
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  const at::Tensor paired = end.index_select(0, at::tensor(order, at::kLong));
  EXPECT_LT(MeanSquaredLength(start, paired), 0.2 * MeanSquaredLength(start, end));
}

TEST(FlowMatchingTest, NoRoundsLeaveTheOrder) {
  const at::Tensor points = Points("moons", 1, 4);
  RandomStream stream(3, RandomPurpose::kBatches);
  EXPECT_EQ(ShorterPairing(points, points.flip(0), 0, stream), (std::vector<int64_t>{0, 1, 2, 3}));
}

// A conditional flow, small.
constexpr const char* kPosterior = R"({
  "format": 1, "name": "small", "seed": 4, "data": {"density": "two_moons"},
  "model": {"format": 1, "kind": "flow", "span": [0, 1], "direction": "noise_to_data",
            "input": {"shape": [2]}, "condition": {"shape": [2]},
            "field": [{"condition_cat": {"features": 2}}, {"depth_cat": {}},
                      {"linear": {"in": 5, "out": 16}}, {"tanh": {}},
                      {"linear": {"in": 16, "out": 2}}]},
  "fit": {"optimiser": {"iterations": 300, "batch": 128, "rate": 0.05, "final_rate": 0.001},
          "flow_matching": {}}})";

std::shared_ptr<const Model> Fitted(const Recipe& recipe) {
  const ModelFiles files = FitModel(recipe, "", at::kCPU).value();
  return Model::FromBytes(files.model_json, files.weights).value();
}

// The mean of -log p under this condition for all points.
double LossUnder(const std::shared_ptr<const Model>& model, const Recipe& recipe, float condition) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const auto source = InputSource::Make(recipe, model->spec(), Direction::kDataToNoise, "").value();
  SolveInputs points = source.HeldOut(512).value();
  std::ranges::fill(points.condition.as<float>(), condition);
  const Solve solve{.model = model,
                    .correction = nullptr,
                    .plan = ParsePlan("dopri5:1e-4").value(),
                    .direction = Direction::kDataToNoise,
                    .log_density = LogDensity::kDivergence};
  const auto solution = RunSolve(*runtime, solve, points).value();
  double sum = 0;
  for (const double value : solution.log_density.as<double>()) sum -= value;
  return sum / 512;
}

// A flow that was trained with the condition that stands for none gives the parameter's own density
// under it: uniform on a square of area 4.
TEST(FlowMatchingTest, DroppedConditionsTeachTheFlowWithoutThem) {
  Recipe recipe = ParseRecipe(kPosterior).value();
  const auto message = [&] {
    return std::string(FitModel(recipe, "", at::kCPU).status().message());
  };
  const double untaught = LossUnder(Fitted(recipe), recipe, 4);
  recipe.mutable_fit()->set_drop_condition(0.3);
  EXPECT_THAT(message(), testing::HasSubstr("the model does not say condition.none"));
  for (int i = 0; i < 2; ++i) recipe.mutable_model()->mutable_condition()->add_none(4);
  const double taught = LossUnder(Fitted(recipe), recipe, 4);
  EXPECT_LT(taught, std::log(4.0) + 0.6);
  EXPECT_GT(untaught, taught + 0.5);
  recipe.mutable_fit()->clear_drop_condition();
  EXPECT_THAT(message(), testing::HasSubstr("condition.none wants fit.drop_condition above 0"));
}

}  // namespace
}  // namespace hyperserve
