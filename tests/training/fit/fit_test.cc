// The trainer end to end, small: a flow and its correction in seconds, a classifier for a few
// iterations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/plan_error.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/model.pb.h"
#include "tests/testing/idx_fixture.h"
#include "tests/testing/model_fixture.h"
#include "tests/training/fit/small_flow.h"
#include "training/data/dataset.h"
#include "training/data/image_files.h"
#include "training/data/recipe.h"
#include "training/data/recipe.pb.h"
#include "training/fit/fit_hypersolver.h"
#include "training/fit/fit_model.h"
#include "training/measure/calibrate.h"
#include "training/measure/judge.h"
#include "training/measure/measure.h"
#include "training/measure/rivals.h"

namespace hyperserve {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A flow of a few hundred weights. After short training its field is curved enough for a
// correction.
const std::string kFlow = SmallFlow(
    R"("fit": {"optimiser": {"iterations": 60, "batch": 64, "rate": 0.05, "final_rate": 0.01},
          "solver": "midpoint:3", "speed_penalty": 0.01, "bend_penalty": 0.01},
  "hypersolver": {
    "net": {"method": "heun", "direction": "noise_to_data", "steps": [1, 2],
            "inputs": ["state", "slope_1", "step"],
            "net": [{"linear": {"in": 5, "out": 32}}, {"prelu": {"slopes": 1}},
                    {"linear": {"in": 32, "out": 2}}]},
    "optimiser": {"iterations": 400, "batch": 128, "rate": 0.01},
    "steps": [1, 1, 2], "truth": "dopri5:1e-6", "truth_rows": 256, "pretrain_iterations": 50,
    "swap_every": 50, "trajectory_share": 0.25, "check_every": 50, "check_rows": 128,
    "probe_rows": 16},
  "calibrate": {"plans": ["heun:1", "heun:2", "rk4:2"], "reference": "dopri5:1e-7", "rows": 256,
                "batch": 128, "default_error": 0.01})");

Recipe FlowRecipe() { return ParseRecipe(kFlow).value(); }

class FlowFitTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    files_ = new ModelFiles(FitModel(FlowRecipe(), "", at::kCPU).value());
    runtime_ = MakeDeviceRuntime("cpu")->release();
  }
  static void TearDownTestSuite() {
    delete files_;
    delete runtime_;
  }
  static std::shared_ptr<const Model> LoadedModel() {
    return Model::FromBytes(files_->model_json, files_->weights).value();
  }
  static HypersolverFitOptions Options() { return {.model = LoadedModel(), .runtime = runtime_}; }
  static absl::StatusOr<Calibration> Calibrated(const Recipe& recipe) {
    auto measurer =
        HeldOutMeasurer(recipe, *runtime_, LoadedModel(), Direction::kNoiseToData, "").value();
    const auto model = LoadedModel();
    Rivals rivals(*model, measurer);
    return CalibrateModel(recipe, *runtime_, *model, rivals);
  }
  static ModelFiles* files_;
  static DeviceRuntime* runtime_;
};
ModelFiles* FlowFitTest::files_ = nullptr;
DeviceRuntime* FlowFitTest::runtime_ = nullptr;

double MeanLogDensity(DeviceRuntime& runtime, const std::shared_ptr<const Model>& model) {
  const Recipe recipe = FlowRecipe();
  const auto source = InputSource::Make(recipe, model->spec(), Direction::kDataToNoise, "").value();
  const Solve solve{.model = model,
                    .correction = nullptr,
                    .plan = ParsePlan("dopri5:1e-6").value(),
                    .direction = Direction::kDataToNoise,
                    .log_density = LogDensity::kDivergence};
  const auto solution = RunSolve(runtime, solve, source.HeldOut(512).value()).value();
  double sum = 0;
  for (const double value : solution.log_density.as<double>()) sum += value;
  return sum / 512;
}

TEST_F(FlowFitTest, LikelihoodRises) {
  Recipe untrained = FlowRecipe();
  untrained.mutable_fit()->mutable_optimiser()->set_iterations(1);
  const ModelFiles first = FitModel(untrained, "", at::kCPU).value();
  const auto start = Model::FromBytes(first.model_json, first.weights).value();
  EXPECT_GT(MeanLogDensity(*runtime_, LoadedModel()), MeanLogDensity(*runtime_, start) + 0.2);
}

TEST_F(FlowFitTest, SameRecipeSameBytes) {
  const auto again = FitModel(FlowRecipe(), "", at::kCPU);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->weights, files_->weights);
  EXPECT_EQ(again->model_json, files_->model_json);
  Recipe other = FlowRecipe();
  other.set_seed(5);
  EXPECT_NE(FitModel(other, "", at::kCPU)->weights, files_->weights);
}

// The same flow by flow matching, in either direction.
Recipe MatchingRecipe(const char* direction) {
  Recipe recipe = FlowRecipe();
  recipe.mutable_model()->set_direction(direction);
  recipe.mutable_model()->mutable_field(0)->mutable_linear()->set_in(3);
  hyperserve::v1::Layer depth;
  depth.mutable_depth_cat();
  auto& field = *recipe.mutable_model()->mutable_field();
  *field.Add() = depth;
  std::rotate(field.pointer_begin(), field.pointer_end() - 1, field.pointer_end());
  training::ModelFit& fit = *recipe.mutable_fit();
  fit.clear_solver();
  fit.clear_speed_penalty();
  fit.clear_bend_penalty();
  fit.mutable_flow_matching()->set_pairing_rounds(20);
  fit.mutable_optimiser()->set_iterations(200);
  return recipe;
}

TEST_F(FlowFitTest, FlowMatchingRaisesTheLikelihoodInBothDirections) {
  for (const char* direction : {"noise_to_data", "data_to_noise"}) {
    const Recipe recipe = MatchingRecipe(direction);
    Recipe untrained = recipe;
    untrained.mutable_fit()->mutable_optimiser()->set_iterations(1);
    const auto first = FitModel(untrained, "", at::kCPU), last = FitModel(recipe, "", at::kCPU);
    ASSERT_TRUE(first.ok() && last.ok()) << first.status() << last.status();
    const auto start = Model::FromBytes(first->model_json, first->weights).value();
    const auto model = Model::FromBytes(last->model_json, last->weights).value();
    EXPECT_GT(MeanLogDensity(*runtime_, model), MeanLogDensity(*runtime_, start) + 0.2)
        << direction;
    EXPECT_EQ(FitModel(recipe, "", at::kCPU)->weights, last->weights);
  }
}

TEST_F(FlowFitTest, FlowMatchingNeedsAFieldThatKnowsTheDepth) {
  Recipe recipe = MatchingRecipe("noise_to_data");
  *recipe.mutable_model()->mutable_field() = FlowRecipe().model().field();
  EXPECT_THAT(std::string(FitModel(recipe, "", at::kCPU).status().message()),
              HasSubstr("depth_cat"));
}

// A conditional flow, fitted by matching.
Recipe PosteriorRecipe() {
  Recipe recipe = MatchingRecipe("noise_to_data");
  recipe.mutable_data()->set_density("two_moons");
  recipe.mutable_model()->mutable_condition()->add_shape(2);
  hyperserve::v1::Layer condition;
  condition.mutable_condition_cat()->set_features(2);
  auto& field = *recipe.mutable_model()->mutable_field();
  field.Mutable(1)->mutable_linear()->set_in(5);
  *field.Add() = condition;
  std::rotate(field.pointer_begin(), field.pointer_end() - 1, field.pointer_end());
  recipe.mutable_fit()->mutable_flow_matching()->set_pairing_rounds(0);
  recipe.mutable_hypersolver()->mutable_net()->set_direction("noise_to_data");
  return recipe;
}

TEST_F(FlowFitTest, AConditionalFlowAndItsCorrectionAreFitted) {
  const Recipe recipe = PosteriorRecipe();
  const auto files = FitModel(recipe, "", at::kCPU);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto model = Model::FromBytes(files->model_json, files->weights).value();
  const auto judgement = JudgeFlow(recipe, *runtime_, model);
  ASSERT_TRUE(judgement.ok()) << judgement.status();
  // Ignoring the condition costs log 4 nats: the parameter is uniform on a square of area 4.
  EXPECT_LT(judgement->nll, std::log(4.0) - 0.3);
  EXPECT_EQ(judgement->p, 1.0 / 200);  // 200 iterations draw no crescents
  ASSERT_EQ(judgement->ranks.size(), 2U);
  HypersolverFitOptions options = Options();
  options.model = model;
  const auto fitted = FitHypersolver(recipe, options);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_LT(fitted->calibration.plans[0].error_mean, 0.7 * fitted->base_plans[0].error_mean);
  const auto probe = SafetensorsFile::Parse(fitted->files.at("probe.safetensors"));
  EXPECT_EQ(probe->Find("condition")->shape, (Shape{16, 2}));
}

TEST_F(FlowFitTest, NoiseStaysIndependentOfTheCondition) {
  Recipe recipe = PosteriorRecipe();
  recipe.mutable_fit()->mutable_flow_matching()->set_pairing_rounds(1);
  EXPECT_THAT(std::string(FitModel(recipe, "", at::kCPU).status().message()),
              HasSubstr("pairing_rounds: a flow with a condition takes 0"));
}

TEST_F(FlowFitTest, AJudgementTellsAFlowFromItsDensity) {
  const auto judgement = JudgeFlow(FlowRecipe(), *runtime_, LoadedModel());
  ASSERT_TRUE(judgement.ok()) << judgement.status();
  EXPECT_EQ(judgement->p, 1.0 / 200);  // 60 iterations draw no eight clusters
  EXPECT_GT(judgement->nll, judgement->entropy + 0.1);
  // Eight clusters with deviations of .2, which overlap little.
  const double entropy = std::log(8 * 2 * std::numbers::pi * std::numbers::e * 0.2 * 0.2);
  EXPECT_NEAR(judgement->entropy, entropy, 0.05);
}

TEST_F(FlowFitTest, CorrectionBeatsItsBaseWhereItClaimsTo) {
  const auto fitted = FitHypersolver(FlowRecipe(), Options());
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_THAT(fitted->spec.steps, Contains(1));
  for (size_t i = 0; i < fitted->base_plans.size(); ++i) {
    const PlanCalibration& hyper = fitted->calibration.plans[i];
    const PlanCalibration& base = fitted->base_plans[i];
    const bool claimed = std::find(fitted->spec.steps.begin(), fitted->spec.steps.end(),
                                   hyper.plan.fixed()->steps) != fitted->spec.steps.end();
    EXPECT_EQ(claimed, hyper.error_mean <= kClaimRatio * base.error_mean) << PrintPlan(hyper.plan);
    EXPECT_EQ(hyper.nfe, base.nfe);
    EXPECT_GT(hyper.macs, base.macs);
  }
  EXPECT_LT(fitted->calibration.plans[0].error_mean, 0.5 * fitted->base_plans[0].error_mean);
  EXPECT_EQ(fitted->spec.eps, (std::array<double, 2>{0.5, 1.0}));

  const auto probe = SafetensorsFile::Parse(fitted->files.at("probe.safetensors"));
  EXPECT_EQ(probe->Find("x")->shape, (Shape{16, 2}));

  // Two runs differ in measured times only.
  const auto again = FitHypersolver(FlowRecipe(), Options());
  for (const char* name : {"weights.safetensors", "hypersolver.json", "probe.safetensors"}) {
    EXPECT_EQ(again->files.at(name), fitted->files.at(name)) << name;
  }
}

TEST_F(FlowFitTest, ARefreshStartsFromWhatIsThere) {
  Recipe recipe = FlowRecipe();
  const auto first = FitHypersolver(recipe, Options());
  ASSERT_TRUE(first.ok()) << first.status();
  // This learning rate ruins the weights: those that it started from are kept.
  recipe.mutable_hypersolver()->mutable_optimiser()->set_iterations(5);
  recipe.mutable_hypersolver()->mutable_optimiser()->set_rate(1);
  HypersolverFitOptions options = Options();
  options.start_from = first->files;
  const auto refreshed = FitHypersolver(recipe, options);
  ASSERT_TRUE(refreshed.ok()) << refreshed.status();
  EXPECT_EQ(refreshed->calibration.plans[0].error_mean, first->calibration.plans[0].error_mean);
  EXPECT_EQ(refreshed->spec.provenance.at("best_iteration"), "0");
  EXPECT_EQ(refreshed->spec.provenance.count("started_from_weights_sha256"), 1u);
}

TEST_F(FlowFitTest, ARefreshOfAnotherKindIsRefused) {
  Recipe recipe = FlowRecipe();
  recipe.mutable_hypersolver()->mutable_optimiser()->set_iterations(1);
  HypersolverFitOptions options = Options();
  options.start_from = FitHypersolver(FlowRecipe(), Options())->files;
  recipe.mutable_hypersolver()->mutable_net()->mutable_inputs()->SwapElements(0, 1);
  EXPECT_THAT(std::string(FitHypersolver(recipe, options).status().message()),
              HasSubstr("another method, direction, inputs or net"));
  recipe.mutable_hypersolver()->mutable_net()->set_direction("forward");
  EXPECT_THAT(std::string(FitHypersolver(recipe, Options()).status().message()),
              HasSubstr("a flow is solved noise_to_data or data_to_noise"));
}

TEST_F(FlowFitTest, WhatCannotBeHeldOutIsSaidBeforeTraining) {
  const ModelSpec spec = LoadedModel()->spec();
  EXPECT_TRUE(CheckHeldOut(FlowRecipe(), spec, "").ok());
  Recipe recipe = FlowRecipe();
  recipe.clear_calibrate();
  EXPECT_EQ(CheckHeldOut(recipe, spec, "").code(), absl::StatusCode::kInvalidArgument);
  ModelSpec wide = spec;
  wide.input.shape = {3};
  EXPECT_THAT(std::string(CheckHeldOut(FlowRecipe(), wide, "").message()),
              HasSubstr("points of the plane"));
}

TEST_F(FlowFitTest, APlanThatLeavesARowUnsolvedIsLeftOut) {
  Recipe recipe = FlowRecipe();
  recipe.mutable_calibrate()->add_plans("dopri5:1e-300");
  const auto calibration = Calibrated(recipe);
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  for (const PlanCalibration& measured : calibration->plans) {
    EXPECT_FALSE(std::holds_alternative<AdaptivePlan>(measured.plan.choice));
  }
}

TEST_F(FlowFitTest, ACorrectionThatBeatsNothingIsNotMade) {
  Recipe recipe = FlowRecipe();
  recipe.mutable_hypersolver()->mutable_optimiser()->set_iterations(1);
  recipe.mutable_hypersolver()->mutable_optimiser()->set_rate(10);
  const auto fitted = FitHypersolver(recipe, Options());
  EXPECT_EQ(fitted.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string table(fitted.status().message());
  EXPECT_THAT(table, AllOf(HasSubstr("\nhyper_heun:1 "), HasSubstr("\nheun:1 "), HasSubstr(" no\n"),
                           Not(HasSubstr(" yes\n"))));
}

TEST_F(FlowFitTest, CalibrationChoosesADefault) {
  const auto calibration = Calibrated(FlowRecipe());
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  // A classical plan that costs less than those of the recipe is the default, and joins them.
  ASSERT_EQ(calibration->plans.size(), 4u);
  EXPECT_EQ(calibration->plans.back().plan, calibration->default_plan);
  EXPECT_EQ(calibration->base_digest, LoadedModel()->base_digest());
  EXPECT_EQ(calibration->default_plan, CheapestWithin(calibration->plans, 0.01, 0));
  EXPECT_EQ(calibration->reference, "dopri5:1e-7/double");
  EXPECT_EQ(calibration->rows, 256);
}

// Images whose label is the brightest row of the first ten.
constexpr const char* kClassifier = R"({
  "format": 1, "name": "tiny", "seed": 1, "data": {"idx": {"validation_rows": 256}},
  "model": {"format": 1, "kind": "classifier", "span": [0, 1],
            "input": {"shape": [1, 10, 10], "unit_range": true},
            "stem": [{"batch_norm": {"channels": 1}},
                     {"augment": {"layers": [{"conv2d": {"in": 1, "out": 2, "kernel": 3,
                                                         "padding": 1}}]}}],
            "field": [{"conv2d": {"in": 3, "out": 3, "kernel": 3, "padding": 1}}, {"tanh": {}}],
            "head": [{"flatten": {}}, {"linear": {"in": 300, "out": 10}}]},
  "fit": {"optimiser": {"iterations": 60, "batch": 32, "rate": 0.02, "final_rate": 0.001},
          "solver": "midpoint:2", "speed_penalty": 0.05, "bend_penalty": 0.02},
  "calibrate": {"plans": ["heun:1"], "reference": "dopri5:1e-5", "rows": 100, "batch": 50}})";

TEST(ClassifierFitTest, LearnsAndCarriesTheStatisticsOfItsData) {
  const TemporaryFolder folder;
  fixture::WriteIdxData(folder.path(), {.training_rows = 600, .test_rows = 100, .side = 10});
  const Recipe recipe = ParseRecipe(kClassifier).value();
  const auto files = FitModel(recipe, folder.path(), at::kCPU);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto model = Model::FromBytes(files->model_json, files->weights).value();
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const auto test = LoadImages(folder.path(), ImagePart::kTest, {.shape = {1, 10, 10}}, 10).value();
  const Solve solve{.model = model, .correction = nullptr, .plan = ParsePlan("rk4:2").value()};
  const auto solution =
      RunSolve(*runtime, solve, SolveInputs{.entry = Entry::kInput, .rows = test.images});
  ASSERT_TRUE(solution.ok()) << solution.status();
  EXPECT_GT(ShareOfEqual(LabelsOf(solution->outputs), test.labels), 0.9);

  const auto weights = SafetensorsFile::Parse(files->weights);
  const TensorView mean = weights->Find("stem.0.running_mean").value();
  const auto data =
      LoadImages(folder.path(), ImagePart::kTraining, {.shape = {1, 10, 10}}, 10).value();
  double sum = 0;
  const auto pixels = data.images.as<uint8_t>().subspan(0, 344 * 100);
  for (const uint8_t pixel : pixels) sum += pixel / 255.0;
  float found = 0;
  std::memcpy(&found, mean.bytes.data(), sizeof(found));
  EXPECT_NEAR(found, sum / pixels.size(), 1e-5);
}

TEST(ClassifierFitTest, SaysWhatItDoesNotTrain) {
  Recipe recipe = ParseRecipe(kClassifier).value();
  *recipe.mutable_model()->add_field() = recipe.model().stem(0);
  recipe.mutable_model()->mutable_field(2)->mutable_batch_norm()->set_channels(3);
  const auto normed = FitModel(recipe, "", at::kCPU);
  EXPECT_THAT(std::string(normed.status().message()), HasSubstr("batch norm"));
  recipe = ParseRecipe(kClassifier).value();
  recipe.mutable_fit()->set_solver("euler:4");
  EXPECT_THAT(std::string(FitModel(recipe, "", at::kCPU).status().message()),
              HasSubstr("bend_penalty"));
}

}  // namespace
}  // namespace hyperserve
