// Regressors and trajectories through the trainer, small: bases, a correction, what they are
// measured on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numbers>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/engine/device_runtime.h"
#include "core/io/file.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "tests/testing/model_fixture.h"
#include "training/data/dataset.h"
#include "training/data/recipe.h"
#include "training/fit/fit_hypersolver.h"
#include "training/fit/fit_learned.h"
#include "training/fit/fit_model.h"
#include "training/measure/judge.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTracking = R"({
  "format": 1, "name": "small", "seed": 4,
  "data": {"signal": {"components": [{"sine": [1]}, {"cosine": [1], "mean": 0.5}], "period": 1,
                      "spread": 0.05}},
  "model": {"format": 1, "kind": "trajectory", "span": [0, 1], "input": {"shape": [2]},
            "field": [{"galerkin_linear": {"in": 2, "out": 16, "terms": 3, "basis": "fourier"}},
                      {"tanh": {}},
                      {"galerkin_linear": {"in": 16, "out": 2, "terms": 3, "basis": "fourier"}}],
            "save_at": [0, 0.25, 0.5, 0.75, 1]},
  "fit": {"optimiser": {"iterations": ITERATIONS, "batch": 32, "rate": 0.02, "final_rate": 0.001},
          "solver": "rk4:1"},
  "hypersolver": {
    "net": {"method": "euler", "direction": "forward", "steps": [4],
            "inputs": ["state", "slope_1", "step", "depth"],
            "net": [{"linear": {"in": 6, "out": 16}}, {"tanh": {}},
                    {"linear": {"in": 16, "out": 2}}]},
    "optimiser": {"iterations": 300, "batch": 64, "rate": 0.02},
    "steps": [4], "truth": "dopri5:1e-6", "truth_rows": 128, "pretrain_iterations": 50,
    "swap_every": 100, "trajectory_share": 1, "check_every": 100, "check_rows": 64,
    "probe_rows": 16},
  "calibrate": {"plans": ["euler:4", "rk4:4"], "reference": "dopri5:1e-7", "rows": 64,
                "batch": 64, "default_error": 0.05}})";

Recipe Tracking(int iterations) {
  return ParseRecipe(absl::StrReplaceAll(kTracking, {{"ITERATIONS", absl::StrCat(iterations)}}))
      .value();
}

std::shared_ptr<const Model> Fitted(const Recipe& recipe, const std::string& data = "") {
  const ModelFiles files = FitModel(recipe, data, at::kCPU).value();
  return Model::FromBytes(files.model_json, files.weights).value();
}

// The distance that Quality tells.
double Distance(const Recipe& recipe, DeviceRuntime& runtime,
                const std::shared_ptr<const Model>& model, const std::string& data = "") {
  const std::string text = Quality(recipe, runtime, model, data).value();
  const std::string before = "root mean square distance from the answers ";
  EXPECT_EQ(text.rfind(before, 0), 0u) << text;
  return std::strtod(text.c_str() + before.size(), nullptr);
}

TEST(FitKindsTest, ATrajectoryTracksItsSignalAndItsCorrectionFollows) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const Recipe recipe = Tracking(400);
  const auto model = Fitted(recipe), untrained = Fitted(Tracking(1));
  const double distance = Distance(recipe, *runtime, model);
  EXPECT_LT(distance, 0.25);
  EXPECT_LT(distance, 0.4 * Distance(recipe, *runtime, untrained));
  const auto correction = FitHypersolver(recipe, {.model = model, .runtime = runtime.get()});
  ASSERT_TRUE(correction.ok()) << correction.status();
  EXPECT_EQ(correction->spec.steps, std::vector<int>{4});
  EXPECT_LT(correction->calibration.plans[0].error_mean,
            0.6 * correction->base_plans[0].error_mean);
}

TEST(FitKindsTest, ASignalIsTheAnswerOfRowsAroundIt) {
  const Recipe recipe = Tracking(1);
  const ModelSpec spec = RecipeModelSpec(recipe).value();
  const auto source = InputSource::Make(recipe, spec, Direction::kForward, "").value();
  const SolveInputs rows = source.HeldOut(200).value();
  ASSERT_EQ(rows.answer.shape, (Shape{200, 5, 2}));
  double sum = 0, squares = 0;
  for (int64_t row = 0; row < 200; ++row) {
    const double off = rows.rows.as<float>()[2 * row + 1] - 1.5;  // cos 0 + mean
    sum += off / 200;
    squares += off * off / 200;
    EXPECT_NEAR(rows.answer.as<float>()[10 * row + 2], 1.0, 1e-6) << "sin(pi / 2)";
    EXPECT_NEAR(rows.answer.as<float>()[10 * row + 5], -0.5, 1e-6) << "cos(pi) + mean";
  }
  EXPECT_NEAR(sum, 0, 0.02);
  EXPECT_NEAR(std::sqrt(squares), 0.05, 0.01);
  EXPECT_NE(source.Training(0, 4).rows.bytes, source.Training(1, 4).rows.bytes);
}

TEST(FitKindsTest, LearnedSolversAreNotForTrajectories) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  Recipe recipe = Tracking(1);
  const auto model = Fitted(recipe);
  auto& fit = *recipe.mutable_hypersolver();
  auto& learned = *fit.mutable_solver()->mutable_learned();
  learned.set_direction("forward");
  learned.add_evaluations(4);
  learned.set_coefficients("scalar");
  const auto refused = FitLearned(recipe, {.model = model, .runtime = runtime.get()});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("no states on the way"));
}

constexpr const char* kRegression = R"({
  "format": 1, "name": "small", "seed": 4,
  "data": {"pairs": {"validation_rows": 256, "held_out_rows": 200}},
  "model": {"format": 1, "kind": "regressor", "span": [0, 1], "input": {"shape": [2]},
            "stem": [{"linear": {"in": 2, "out": 8}}],
            "field": [{"linear": {"in": 8, "out": 8}}, {"tanh": {}}],
            "head": [{"linear": {"in": 8, "out": 1}}]},
  "fit": {"optimiser": {"iterations": 300, "batch": 64, "rate": 0.02, "final_rate": 0.001},
          "solver": "midpoint:2"},
  "calibrate": {"plans": ["euler:4"], "reference": "dopri5:1e-7", "rows": 200, "batch": 64}})";

// What training would not fit is refused before it begins.
TEST(FitKindsTest, WhatIsTrainedForOtherKindsIsRefused) {
  const auto refusal = [](const std::string& from, const std::string& to) {
    const Recipe recipe = ParseRecipe(absl::StrReplaceAll(kRegression, {{from, to}})).value();
    return std::string(FitModel(recipe, "", at::kCPU).status().message());
  };
  EXPECT_THAT(refusal(R"("stem": [)", R"("stem": [{"batch_norm": {"channels": 2}}, )"),
              HasSubstr("the first layer of a classifier's stem only"));
  EXPECT_THAT(
      refusal(R"("solver": "midpoint:2")", R"("solver": "midpoint:2", "drop_condition": 0.1)"),
      HasSubstr("trained for flows only"));
}

TEST(FitKindsTest, ARegressorLearnsItsPairs) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/pairs.safetensors";
  std::vector<double> x, y;
  for (int i = 0; i < 1000; ++i) {
    const double a = std::sin(i * 1.3), b = std::cos(i * 0.7);
    x.insert(x.end(), {a, b});
    y.push_back(a * b + 0.5 * a);
  }
  const auto write = [&](const Shape& shape) {
    ASSERT_TRUE(
        WriteFileAtomically(file, fixture::SafetensorsOf({{"x", {1000, 2}, x}, {"y", shape, y}}))
            .ok());
  };
  write({1000, 1});
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const Recipe recipe = ParseRecipe(kRegression).value();
  // The answers spread by 0.61 about their mean: nine tenths of their variance is explained.
  EXPECT_LT(Distance(recipe, *runtime, Fitted(recipe, file), file), 0.19);
  write({1000});
  EXPECT_THAT(std::string(FitModel(recipe, file, at::kCPU).status().message()),
              HasSubstr("[1000], wanted is [1000, 1]"));
}

}  // namespace
}  // namespace hyperserve
