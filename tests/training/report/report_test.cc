#include "training/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/engine/device_runtime.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "tests/testing/model_fixture.h"
#include "training/data/recipe.h"
#include "training/report/chart.h"
#include "training/report/experiment.h"
#include "training/report/page.h"

namespace hyperserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

PlanCalibration Measured(const std::string& text, double macs, double error, double agreement) {
  PlanCalibration plan;
  plan.plan = *ParsePlan(text);
  plan.macs = macs;
  plan.error_mean = error;
  plan.agreement = agreement;
  plan.seconds_per_row = 1e-6;
  return plan;
}

int Count(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(ChartTest, LogChartsLeaveOutWhatTheyCannotPlace) {
  const std::vector<ChartPoint> points = {
      {.x = 1, .y = 0.1, .title = "a<b"}, {.x = 0, .y = 1}, {.x = 2, .y = kInfinity}};
  const std::string chart = LogChart("cost", "error", {{"one", "#000", points, true}});
  EXPECT_EQ(Count(chart, "<circle"), 1);
  EXPECT_THAT(chart, HasSubstr("<title>a&lt;b</title>"));
  EXPECT_THAT(chart, Not(HasSubstr("nan")));
  EXPECT_THAT(LogChart("cost", "error", {{"one", "#000", {{.x = 0, .y = 1}}}}), IsEmpty());
}

TEST(ChartTest, HistogramsCountHalfDecades) {
  const std::vector<ChartPoint> low = {{.x = 1e-3}, {.x = 1.1e-3}, {.x = kInfinity}};
  const std::vector<ChartPoint> high = {{.x = 0.5}};
  const std::string chart = LogHistogram({{"low", "#000", low}, {"high", "#111", high}});
  // Two outlines over the decades from 1e-3 to 1; the tallest bin, that of `low`, reaches the top.
  EXPECT_EQ(Count(chart, "fill=\"none\""), 2);
  EXPECT_THAT(chart, HasSubstr(">1e-3<"));
  EXPECT_THAT(chart, HasSubstr("M62.0 296.0L62.0 12.0"));
  EXPECT_THAT(LogHistogram({{"none", "#000", {{.x = kInfinity}}}}), IsEmpty());
}

TEST(ChartTest, CloudsAndHeatMapsLeaveOutWhatIsNotThere) {
  EXPECT_THAT(CloudChart({{.x = 0, .y = 0}, {.x = 5, .y = 0}}, 4, "#000"),
              HasSubstr("d=\"M150 150h0\""));
  const std::string heat =
      HeatMap({.columns = {"x_0", "k_0"}, .names = {"x_1"}, .values = {{-1.25, std::nan("")}}});
  EXPECT_EQ(Count(heat, "<rect"), 1);
  EXPECT_THAT(heat, HasSubstr("-1.250"));
}

TEST(PageTest, TellsTheBarAndItsVerdict) {
  EXPECT_EQ(RatioBar(ModelKind::kFlow, 1), 0.25);
  EXPECT_EQ(RatioBar(ModelKind::kClassifier, 8), 0.40);
  EXPECT_EQ(RatioBar(ModelKind::kFlow, 0), std::nullopt);
  ReportContent content{.name = "a&b", .kind = ModelKind::kClassifier, .rows = 64};
  content.calibration.plans = {Measured("euler:1", 100, 0.3, 0.9)};
  content.calibration.default_plan = *ParsePlan("learned:2");
  content.corrected = {Measured("learned:2", 210, 0.009, 0.996)};
  content.contests = {{.evaluations = 2, .rival = "midpoint:1", .error = 0.5, .rival_error = 1},
                      {.evaluations = 3, .rival = "rk3:1", .error = 0.5, .rival_error = 1}};
  const std::string page = ReportPage(content);
  EXPECT_THAT(page, HasSubstr("<h1>a&amp;b, a classifier</h1>"));
  EXPECT_THAT(page, HasSubstr("<td>midpoint:1</td><td>1</td><td>0.500</td><td>0.60</td><td>met"));
  EXPECT_THAT(page, HasSubstr("<td>rk3:1</td><td>1</td><td>0.500</td><td>0.42</td><td>missed"));
  EXPECT_THAT(page, HasSubstr("It is learned: the bar is met."));
  EXPECT_EQ(Count(page, "http"), 0);  // self-contained
}

TEST(PageTest, TheFrontIsAPictureOfItsOwn) {
  ReportContent content{.name = "a", .kind = ModelKind::kFlow};
  content.calibration.plans = {Measured("euler:1", 100, 0.3, 1)};
  content.corrected = {Measured("learned:2", 210, 0.009, 1)};
  const std::string picture = FrontPicture(content);
  EXPECT_THAT(picture, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(picture, HasSubstr("learned:2: error 0.009, 210 MACs"));
  EXPECT_EQ(Count(picture, "<svg"), 1);
}

TEST(PageTest, ADefaultPlanMissesTheBarInWords) {
  ReportContent content{.name = "m", .kind = ModelKind::kClassifier};
  content.calibration.plans = {Measured("euler:1", 100, 0.001, 1)};
  content.corrected = {Measured("learned:2", 210, 0.009, 0.99)};
  content.calibration.default_plan = *ParsePlan("learned:2");
  EXPECT_THAT(ReportPage(content), HasSubstr("of at least 99.5 %. The bar is missed."));
  content.calibration.default_plan = *ParsePlan("euler:1");
  EXPECT_THAT(ReportPage(content), HasSubstr("It is not learned: the bar is missed."));
  content.calibration.default_plan = std::nullopt;
  EXPECT_THAT(ReportPage(content), HasSubstr("dopri5:1e-5, which was not measured"));
}

TEST(ReportTest, TablesAreRowsOfStatesWithMeansOfDiagonals) {
  const std::string bytes =
      fixture::SafetensorsOf({{"table.2.state", {2, 2, 2}, {1, 9, 9, 3, 5, 9, 9, 7}},
                              {"table.2.slopes", {3, 2, 2}, {1, 0, 0, 1, 2, 0, 0, 2, 3, 0, 0, 5}}});
  const auto tensors = SafetensorsFile::Parse(bytes);
  ASSERT_TRUE(tensors.ok());
  const auto table = TableRows({.evaluations = 2, .coefficients = Coefficients::kMap}, *tensors);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->rows.columns, ElementsAre("x_0", "k_0", "k_1"));
  EXPECT_THAT(table->rows.names, ElementsAre("x_1", "x_2"));
  EXPECT_THAT(table->rows.values[0], ElementsAre(2, 1, IsNan()));
  EXPECT_THAT(table->rows.values[1], ElementsAre(6, 2, 4));
  EXPECT_FALSE(TableRows({.evaluations = 3}, *tensors).ok());
}

TEST(ReportTest, GathersAModelWithItsCorrection) {
  TemporaryFolder folder;
  ASSERT_TRUE(fixture::WriteTinyRepository(folder.path()).ok());
  const auto recipe = ParseRecipe(R"({
    "format": 1, "name": "tiny_flow", "seed": 1, "data": {"density": "rings"},
    "calibrate": {"plans": ["euler:1"], "reference": "dopri5:1e-7", "rows": 100, "batch": 20}})");
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const auto runtime = MakeDeviceRuntime("cpu");
  ASSERT_TRUE(runtime.ok());
  const auto content = GatherReport(*recipe, **runtime, folder.path() + "/tiny_flow", "");
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(content->rows, 20);
  EXPECT_THAT(content->contests, IsEmpty());  // it has no learned solver
  ASSERT_THAT(content->samples, SizeIs(2));   // the reference and the default plan
  EXPECT_EQ(content->samples[1].plan, "dopri5:1e-5");
  for (const Samples& samples : content->samples) EXPECT_THAT(samples.points, SizeIs(20));
  EXPECT_NEAR(content->samples[0].points[3].x, content->samples[1].points[3].x, 1e-4);
  EXPECT_EQ(content->provenance.count("heun/1"), 1u);
  EXPECT_THAT(ReportPage(*content), HasSubstr("No learned solver is served."));
}

TEST(ReportTest, RefusesACalibrationOfAnotherBase) {
  TemporaryFolder folder;
  ASSERT_TRUE(fixture::WriteModel(fixture::TinyFlow(), folder.path()).ok());
  const std::string model_folder = folder.path() + "/tiny_flow";
  Calibration other;
  other.base_digest = std::string(64, 'a');
  ASSERT_TRUE(
      WriteFileAtomically(model_folder + "/calibration.json", PrintCalibration(other)).ok());
  const auto recipe = ParseRecipe(R"({
    "format": 1, "name": "tiny_flow", "seed": 1, "data": {"density": "rings"},
    "calibrate": {"plans": ["euler:1"], "reference": "dopri5:1e-7", "rows": 20, "batch": 20}})");
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const auto runtime = MakeDeviceRuntime("cpu");
  ASSERT_TRUE(runtime.ok());
  const auto content = GatherReport(*recipe, **runtime, model_folder, "");
  EXPECT_EQ(content.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(content.status().message()), HasSubstr("measured on another base"));
}

TEST(ExperimentTest, MeasuresTheRecipesPlansAndHypersolvedOnesOfAsManyEvaluations) {
  TemporaryFolder folder;
  ASSERT_TRUE(fixture::WriteTinyRepository(folder.path()).ok());
  const auto recipe = ParseRecipe(R"({
    "format": 1, "name": "tiny_flow", "seed": 1, "data": {"density": "rings"}, "calibrate":
    {"plans": ["euler:2", "alpha(0.25):1"], "reference": "dopri5:1e-7", "rows": 40, "batch": 20}})");
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const auto runtime = MakeDeviceRuntime("cpu");
  ASSERT_TRUE(runtime.ok());
  const auto experiment = RunExperiment(*recipe, **runtime, folder.path() + "/tiny_flow", "");
  ASSERT_TRUE(experiment.ok()) << experiment.status();
  std::vector<std::string> plans;
  for (const ExperimentPlan& one : experiment->plans) plans.push_back(PrintPlan(one.measured.plan));
  // The correction of heun is exact at K = 2, which takes four evaluations: it is left out.
  EXPECT_THAT(plans,
              ElementsAre("euler:2", "alpha(0.25):1", "hyper_heun:1", "hyper_alpha(0.25):1"));
  ASSERT_THAT(experiment->samples, SizeIs(5));
  EXPECT_THAT(experiment->samples[4].points, SizeIs(40));
  // A linear field has the same residual at each alpha, so heun's correction fits all of them.
  EXPECT_NEAR(experiment->plans[3].measured.error_mean, experiment->plans[2].measured.error_mean,
              1e-5);
  EXPECT_THAT(ExperimentTable(*experiment), HasSubstr("\nhyper_heun:1,"));
  EXPECT_EQ(Count(ExperimentPicture(*experiment), "<svg"), 6);  // the file and five panels
}

Experiment OfPlans(const std::vector<std::string>& plans) {
  Experiment experiment{.name = "m", .remark = "m, 100 rows", .accuracy = 0.9};
  for (const std::string& plan : plans) {
    experiment.plans.push_back({.measured = Measured(plan, 100, 0.3, 0.9), .accuracy = 0.8});
    experiment.plans.back().measured.nfe = 2;
  }
  return experiment;
}

TEST(ExperimentTest, DrawsFrontsOfAClassifierAndErrorOverAlpha) {
  const Experiment fronts = OfPlans({"euler:1", "euler:2", "hyper_euler:1", "learned:2"});
  const std::string picture = ExperimentPicture(fronts);
  EXPECT_THAT(picture, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_EQ(Count(picture, "<svg"), 7);  // error and lost accuracy over three costs
  EXPECT_EQ(Count(picture, ">hyper_euler<"), 6);
  EXPECT_THAT(ExperimentTable(fronts), HasSubstr("reference,0,0,90.00"));
  EXPECT_THAT(ExperimentTable(fronts), HasSubstr("learned:2,0.3,0,80.00,90.00,2,0,100,1\n"));

  const std::string alphas =
      ExperimentPicture(OfPlans({"alpha(0.25):1", "hyper_alpha(0.25):1", "hyper_euler:1"}));
  EXPECT_EQ(Count(alphas, "<svg"), 2);
  EXPECT_THAT(alphas, HasSubstr(">hyper_alpha(x):1<"));
  EXPECT_THAT(alphas, Not(HasSubstr("euler")));
}

}  // namespace
}  // namespace hyperserve
