// A learned solver end to end, small: a recipe, a fit, the files of a generation, its plans as they
// are served.
#include "training/fit/fit_learned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "tests/training/fit/small_flow.h"
#include "training/bounds/bounded_plan.h"
#include "training/bounds/bounds.h"
#include "training/bounds/coverage.h"
#include "training/data/dataset.h"
#include "training/data/recipe.h"
#include "training/fit/fit_hypersolver.h"
#include "training/fit/fit_model.h"
#include "training/measure/calibrate.h"
#include "training/measure/measure.h"
#include "training/optimise/curve.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

const std::string kRecipe = SmallFlow(
    R"("fit": {"optimiser": {"iterations": 60, "batch": 64, "rate": 0.05, "final_rate": 0.01},
          "solver": "midpoint:3", "speed_penalty": 0.01, "bend_penalty": 0.01},
  "hypersolver": {
    "solver": {"learned": {"direction": "noise_to_data", "evaluations": [1, 2],
                           "coefficients": "channel"}},
    "optimiser": {"iterations": 150, "batch": 128, "rate": 0.01, "clip_norm": 1},
    "truth": "dopri5:1e-6", "truth_rows": 512, "check_every": 25, "check_rows": 256,
    "probe_rows": 16},
  "calibrate": {"plans": ["heun:1"], "reference": "dopri5:1e-7", "rows": 256, "batch": 128})");

class FitLearnedTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Recipe recipe = ParseRecipe(kRecipe).value();
    const ModelFiles files = FitModel(recipe, "", at::kCPU).value();
    model_ =
        new std::shared_ptr<const Model>(Model::FromBytes(files.model_json, files.weights).value());
  }

  HypersolverFitOptions Options() {
    return {.model = *model_, .data_folder = "", .device = at::kCPU, .runtime = runtime_.get()};
  }

  static std::shared_ptr<const Model>* model_;
  std::unique_ptr<DeviceRuntime> runtime_ = MakeDeviceRuntime("cpu").value();
  const Recipe recipe_ = ParseRecipe(kRecipe).value();
};
std::shared_ptr<const Model>* FitLearnedTest::model_ = nullptr;

TEST_F(FitLearnedTest, ATableHasItsOwnRate) {
  Recipe recipe = recipe_;
  recipe.mutable_hypersolver()->mutable_optimiser()->set_iterations(1);
  auto& learned = *recipe.mutable_hypersolver()->mutable_solver()->mutable_learned();
  learned.add_rates(0.004);
  learned.add_rates(0.002);
  const FittedHypersolver fitted = FitLearned(recipe, Options()).value();
  ASSERT_EQ(fitted.curves.size(), 2u);
  EXPECT_EQ(fitted.curves[0].points.back().rate, 0.004);
  EXPECT_EQ(fitted.curves[1].points.back().rate, 0.002);
}

TEST_F(FitLearnedTest, TheGenerationTellsThatTheTimeEndedItsFits) {
  Recipe recipe = recipe_;
  recipe.mutable_hypersolver()->mutable_optimiser()->set_seconds(1e-9);
  const FittedHypersolver fitted = FitLearned(recipe, Options()).value();
  const std::string told = "stopped after 1e-09 seconds, iteration 1 of 150";
  EXPECT_THAT(fitted.remarks, ::testing::Each(HasSubstr(told)));
  ASSERT_TRUE(fitted.spec.provenance.contains("learned:1"));
  EXPECT_THAT(fitted.spec.provenance.at("learned:1"), HasSubstr(told));
}

TEST_F(FitLearnedTest, TheGenerationIsServedWithTheErrorThatItClaims) {
  const FittedHypersolver fitted = FitLearned(recipe_, Options()).value();
  ASSERT_FALSE(fitted.spec.steps.empty());
  ASSERT_EQ(fitted.calibration.plans.size(), fitted.spec.steps.size());
  ASSERT_EQ(fitted.base_plans.size(), fitted.spec.steps.size());
  EXPECT_EQ(fitted.remarks.size(), 2u) << "one for each n, also of those that are left out";
  const auto solver = Hypersolver::FromBytes(fitted.files.at("hypersolver.json"),
                                             fitted.files.at("weights.safetensors"), **model_)
                          .value();
  EXPECT_EQ(solver->spec().steps, fitted.spec.steps);
  const Direction direction = solver->spec().direction;
  const InputSource source = InputSource::Make(recipe_, (*model_)->spec(), direction, "").value();
  Measurer measurer =
      MakeMeasurer(recipe_, *runtime_, *model_, direction, source.HeldOut(256).value()).value();
  double before = 1e300;
  for (size_t i = 0; i < fitted.spec.steps.size(); ++i) {
    const PlanCalibration& claimed = fitted.calibration.plans[i];
    EXPECT_EQ(PrintPlan(claimed.plan), "learned:" + std::to_string(fitted.spec.steps[i]));
    EXPECT_EQ(measurer.MeanError(claimed.plan, solver).value(), claimed.error_mean);
    EXPECT_LE(claimed.error_mean, kClaimRatio * fitted.base_plans[i].error_mean);
    EXPECT_LT(claimed.error_mean, before) << "fewer evaluations would err less";
    before = claimed.error_mean;
  }
  EXPECT_TRUE(ParseCalibration(fitted.files.at("calibration.json")).ok());
}

// The bounds of rows that neither the fits nor the bounds saw.
TEST_F(FitLearnedTest, BoundsAreAddedToTheFilesAndKept) {
  const FittedHypersolver fitted = FitLearned(recipe_, Options()).value();
  GenerationFiles files = fitted.files;
  const BoundOptions options{.model = *model_, .runtime = runtime_.get(), .rows = 2000};
  ASSERT_TRUE(FitDistances(recipe_, options, files).ok());
  ASSERT_TRUE(CalibrateBounds(recipe_, options, files).ok());
  EXPECT_NE(files.at("weights.safetensors"), fitted.files.at("weights.safetensors"));
  CoverageOptions coverage{.runtime = runtime_.get(),
                           .model = *model_,
                           .truth = ParsePlan("dopri5:1e-6").value(),
                           .batch = 512};
  coverage.solver = Hypersolver::FromBytes(files.at("hypersolver.json"),
                                           files.at("weights.safetensors"), **model_)
                        .value();
  const Calibration calibration = ParseCalibration(files.at("calibration.json")).value();
  const InputSource source =
      InputSource::Make(recipe_, (*model_)->spec(), Direction::kNoiseToData, "").value();
  const SolveInputs rows = source.HeldOut(4000).value();
  const auto plans = SolveWithBounds(coverage, calibration, rows).value();
  ASSERT_EQ(plans.size(), fitted.spec.steps.size());
  for (const BoundedPlan& plan : plans) {
    EXPECT_EQ(plan.calibration.bound->rows, 2000);
    EXPECT_GT(plan.macs, plan.calibration.macs);
    double kept = 0, log_ratio = 0, log_error = 0, squares = 0, ratio_squares = 0;
    for (size_t row = 0; row < plan.errors.size(); ++row) {
      kept += plan.errors[row] <= plan.bounds[row];
      const double error = std::log(plan.errors[row]), ratio = error - std::log(plan.bounds[row]);
      log_error += error / 4000;
      log_ratio += ratio / 4000;
      squares += error * error / 4000;
      ratio_squares += ratio * ratio / 4000;
    }
    EXPECT_NEAR(kept / 4000, 0.95, 0.025) << PrintPlan(plan.calibration.plan);
    EXPECT_LT(ratio_squares - log_ratio * log_ratio, squares - log_error * log_error)
        << "a bound that knows nothing of its row would do as well";
  }
  EXPECT_THAT(CoverageTable(plans), HasSubstr("learned:2"));
  EXPECT_THAT(SavingsTable(plans), HasSubstr("learned:2"));
  EXPECT_EQ(Shifted(rows).size(), 1u);

  // The tables are as they were, so their plans compute the same.
  const auto before = Hypersolver::FromBytes(fitted.files.at("hypersolver.json"),
                                             fitted.files.at("weights.safetensors"), **model_)
                          .value();
  Measurer measurer = MakeMeasurer(recipe_, *runtime_, *model_, Direction::kNoiseToData,
                                   source.HeldOut(256).value())
                          .value();
  const Plan plan = plans.back().calibration.plan;
  EXPECT_EQ(measurer.MeanError(plan, coverage.solver).value(),
            measurer.MeanError(plan, before).value());

  // A refresh starts from the tables, and makes readouts of its own.
  HypersolverFitOptions refresh = Options();
  refresh.start_from = files;
  EXPECT_THAT(FitLearned(recipe_, refresh).value().remarks,
              ::testing::Contains(HasSubstr("started at generation")));
}

TEST_F(FitLearnedTest, TheSameRecipeGivesTheSameWeights) {
  Recipe recipe = recipe_;
  recipe.mutable_hypersolver()->mutable_optimiser()->set_iterations(30);
  const auto weights = [&] {
    return FitLearned(recipe, Options()).value().files.at("weights.safetensors");
  };
  EXPECT_EQ(weights(), weights());
}

// kRecipe for a flow with a condition of two numbers, which its field reads.
Recipe ConditionalRecipe() {
  const auto replaced = [text = std::string(kRecipe)](
                            std::initializer_list<std::pair<const char*, const char*>> pairs) {
    std::string result = text;
    for (const auto& [from, to] : pairs) {
      const size_t place = result.find(from);
      EXPECT_NE(place, std::string::npos) << from;
      result.replace(place, std::string(from).size(), to);
    }
    return result;
  };
  return ParseRecipe(
             replaced({{"gaussians", "two_moons"},
                       {R"("data_to_noise")", R"("noise_to_data", "condition": {"shape": [2]})"},
                       {R"([{"linear": {"in": 2,)",
                        R"([{"condition_cat": {"features": 2}}, {"depth_cat": {}},
                            {"linear": {"in": 5,)"},
                       {R"("solver": "midpoint:3", "speed_penalty": 0.01, "bend_penalty": 0.01)",
                        R"("flow_matching": {})"},
                       {R"("coefficients": "channel")",
                        R"("coefficients": "map", "net": {"hidden": [8]})"}}))
      .value();
}

TEST_F(FitLearnedTest, ASolverOfAConditionalFlowIsFittedUnderItsConditions) {
  const Recipe recipe = ConditionalRecipe();
  const ModelFiles files = FitModel(recipe, "", at::kCPU).value();
  HypersolverFitOptions options = Options();
  options.model = Model::FromBytes(files.model_json, files.weights).value();
  const auto fitted = FitLearned(recipe, options);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  ASSERT_FALSE(fitted->spec.steps.empty());
  EXPECT_LE(fitted->calibration.plans[0].error_mean,
            kClaimRatio * fitted->base_plans[0].error_mean);
}

TEST_F(FitLearnedTest, ARefreshMayStartFromTheGenerationAndSaysSo) {
  Recipe recipe = recipe_;
  HypersolverFitOptions options = Options();
  options.start_from = FitLearned(recipe, options).value().files;
  recipe.mutable_hypersolver()->mutable_optimiser()->set_iterations(1);
  const FittedHypersolver second = FitLearned(recipe, options).value();
  EXPECT_EQ(second.spec.provenance.count("started_from_weights_sha256"), 1u);
  EXPECT_THAT(second.remarks, ::testing::Contains(HasSubstr("started at generation")));
}

double LeastError(const Curve& curve) {
  double least = curve.points.front().error;
  for (const CurvePoint& point : curve.points) {
    if (!std::isnan(point.error)) least = std::min(least, point.error);
  }
  return least;
}

TEST_F(FitLearnedTest, AfterASmallChangeOfTheBaseAWarmStartNeedsAFifthOfTheIterations) {
  HypersolverFitOptions warm = Options();
  warm.start_from = FitLearned(recipe_, Options()).value().files;
  Recipe further = recipe_;
  further.mutable_fit()->mutable_optimiser()->set_iterations(5);
  const ModelFitOptions from_base{.start_from = FitModel(recipe_, "", at::kCPU).value().weights};
  const ModelFiles changed = FitModel(further, "", at::kCPU, from_base).value();
  warm.model = Model::FromBytes(changed.model_json, changed.weights).value();
  ASSERT_NE(warm.model->base_digest(), (*model_)->base_digest());

  HypersolverFitOptions cold = Options();
  cold.model = warm.model;
  const FittedHypersolver anew = FitLearned(recipe_, cold).value();
  Recipe fifth = recipe_;
  fifth.mutable_hypersolver()->mutable_optimiser()->set_iterations(150 / 5);
  const FittedHypersolver refreshed = FitLearned(fifth, warm).value();
  ASSERT_EQ(anew.curves.size(), 2u);
  ASSERT_EQ(refreshed.curves.size(), 2u);
  for (size_t table = 0; table < 2; ++table) {
    EXPECT_EQ(refreshed.curves[table].points.back().iterations, 30);
    // Such small tables are at the best that they can be after 100 iterations, whatever their
    // start; there the order of the batches decides about two percent.
    EXPECT_LE(LeastError(refreshed.curves[table]), 1.03 * LeastError(anew.curves[table]));
  }
}

// The field has 64 multiply-accumulates. A readout that costs several evaluations of it competes
// with classical plans of as many more evaluations, and loses.
TEST_F(FitLearnedTest, AReadoutThatCostsMoreThanItGainsIsNotWritten) {
  Recipe recipe = recipe_;
  auto* learned = recipe.mutable_hypersolver()->mutable_solver()->mutable_learned();
  learned->mutable_net()->add_hidden(16);
  recipe.mutable_hypersolver()->mutable_optimiser()->set_iterations(5);
  const absl::Status status = FitLearned(recipe, Options()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("learned:1: started at"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("left out, it does not win"));
}

TEST_F(FitLearnedTest, TablesAboveTheLimitHaveOneCoefficientAChannel) {
  Recipe recipe = recipe_;
  auto* learned = recipe.mutable_hypersolver()->mutable_solver()->mutable_learned();
  learned->set_coefficients("map");
  learned->set_maps_up_to(1);
  const HypersolverSpec spec = RecipeLearnedSpec(recipe, **model_).value();
  ASSERT_EQ(spec.tables.size(), 2u);
  EXPECT_EQ(spec.tables[0].coefficients, Coefficients::kMap);
  EXPECT_EQ(spec.tables[1].coefficients, Coefficients::kChannel);
}

TEST_F(FitLearnedTest, TablesOfSeveralGenerationsAreJoinedUnchanged) {
  HypersolverFitOptions options = Options();
  std::vector<FittedHypersolver> parts;
  for (const char* numbers : {"1", "2"}) {
    Recipe part = recipe_;
    ASSERT_TRUE(KeepEvaluations(numbers, part).ok());
    parts.push_back(FitLearned(part, Options()).value());
    options.joined.push_back(parts.back().files);
  }
  const FittedHypersolver whole = FitLearned(recipe_, options).value();
  ASSERT_EQ(whole.spec.steps, (std::vector<int>{1, 2}));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(whole.calibration.plans[i].error_mean, parts[i].calibration.plans[0].error_mean);
    EXPECT_THAT(whole.remarks[i], HasSubstr("joined (150 iterations, started at"));
  }
  HypersolverFitOptions again = Options();
  again.joined = {whole.files};
  EXPECT_EQ(FitLearned(recipe_, again)->remarks, whole.remarks) << "joined texts do not nest";
  options.joined.pop_back();
  EXPECT_THAT(std::string(FitLearned(recipe_, options).status().message()),
              HasSubstr("no generation to join has learned:2"));
}

TEST_F(FitLearnedTest, EachTableHasTheNetThatTheRecipeGivesIt) {
  Recipe recipe = recipe_;
  auto* learned = recipe.mutable_hypersolver()->mutable_solver()->mutable_learned();
  learned->add_nets()->add_hidden(8);
  learned->add_nets();
  const HypersolverSpec spec = RecipeLearnedSpec(recipe, **model_).value();
  EXPECT_FALSE(spec.tables[0].net.empty());
  EXPECT_TRUE(spec.tables[1].net.empty());
}

TEST_F(FitLearnedTest, AnotherKindOfGenerationIsNoStart) {
  HypersolverFitOptions options = Options();
  options.start_from = GenerationFiles{{"hypersolver.json", "{}"}, {"weights.safetensors", ""}};
  EXPECT_FALSE(FitLearned(recipe_, options).ok());
}

}  // namespace
}  // namespace hyperserve
