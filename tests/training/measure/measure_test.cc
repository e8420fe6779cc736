#include "training/measure/measure.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "tests/testing/model_fixture.h"
#include "training/data/dataset.h"
#include "training/measure/picture.h"

namespace hyperserve {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

PlanCalibration Measured(const std::string& text, double macs, double error) {
  PlanCalibration plan;
  plan.plan = *ParsePlan(text);
  plan.macs = macs;
  plan.error_mean = error;
  return plan;
}

TEST(MeasureTest, AHypersolvedPlanWinsOnlyUndominated) {
  const std::vector<PlanCalibration> classical = {Measured("heun:1", 100, 0.3),
                                                  Measured("heun:2", 200, 0.1)};
  std::vector<PlanCalibration> hypersolved = {
      Measured("hyper_heun:1", 110, 0.2),   // better than what costs less
      Measured("hyper_heun:2", 210, 0.1),   // as good as a cheaper one
      Measured("hyper_heun:3", 200, 0.1),   // the same in both
      Measured("hyper_heun:4", 190, 0.3)};  // worse than a cheaper one
  MarkWins(classical, hypersolved);
  EXPECT_TRUE(hypersolved[0].wins);
  EXPECT_FALSE(hypersolved[1].wins);
  EXPECT_FALSE(hypersolved[2].wins);
  EXPECT_FALSE(hypersolved[3].wins);
}

TEST(MeasureTest, APlanThatErrsMoreThanOneOfFewerEvaluationsNeverWins) {
  std::vector<PlanCalibration> hypersolved = {Measured("learned:1", 110, 0.05),
                                              Measured("learned:2", 210, 0.06)};
  hypersolved[0].nfe = 1;
  hypersolved[1].nfe = 2;
  MarkWins({Measured("euler:2", 200, 0.3)}, hypersolved);
  EXPECT_TRUE(hypersolved[0].wins);
  EXPECT_FALSE(hypersolved[1].wins);
}

TEST(MeasureTest, AHeavyTailIsMeasuredAtTheBestPlanOfItsCost) {
  std::vector<PlanCalibration> classical = {
      Measured("euler:1", 100, 0.4), Measured("midpoint:1", 200, 0.2), Measured("rk4:1", 400, 0.1)};
  classical[0].error_p99 = 0.5;
  classical[1].error_p99 = 0.9;
  classical[2].error_p99 = 0.3;
  std::vector<PlanCalibration> hypersolved = {Measured("learned:1", 110, 0.1),
                                              Measured("learned:2", 210, 0.1)};
  hypersolved[0].error_p99 = hypersolved[1].error_p99 = 0.6;
  MarkWins(classical, hypersolved);
  EXPECT_TRUE(hypersolved[0].heavy_tail);
  EXPECT_FALSE(hypersolved[1].heavy_tail);
  EXPECT_EQ(CheapestWithin(hypersolved, 0.2, 0), *ParsePlan("learned:2"));
}

TEST(MeasureTest, TablesLeaveOutWhatAPlanHasNot) {
  PlanCalibration labelled = Measured("euler:1", 100, 0.3);
  labelled.agreement = 0.75;
  EXPECT_THAT(CalibrationTable(ModelKind::kClassifier, {labelled}), HasSubstr(" 0.7500 "));
  const std::string flow = CalibrationTable(ModelKind::kFlow, {Measured("heun:1", 100, 0.3)});
  EXPECT_THAT(flow, HasSubstr("       - "));
  EXPECT_THAT(flow, Not(AnyOf(HasSubstr("0.0000"), HasSubstr("yes"))));
}

TEST(MeasureTest, DefaultIsTheCheapestWithinTheError) {
  const std::vector<PlanCalibration> plans = {
      Measured("heun:8", 800, 1e-4), Measured("rk4:2", 400, 9e-4), Measured("heun:1", 100, 0.3)};
  EXPECT_EQ(CheapestWithin(plans, 1e-3, 0), *ParsePlan("rk4:2"));
  EXPECT_EQ(CheapestWithin(plans, 1e-9, 0), std::nullopt);
}

TEST(MeasureTest, DefaultsAgreeOnLabels) {
  std::vector<PlanCalibration> plans = {Measured("learned:2", 200, 0.01),
                                        Measured("learned:4", 400, 0.005)};
  plans[0].agreement = 0.99;
  plans[1].agreement = 0.999;
  EXPECT_EQ(CheapestWithin(plans, 0.01, 0.995), *ParsePlan("learned:4"));
}

TEST(MeasureTest, PlansOfATinyFlowAgainstItsClosedForm) {
  at::set_num_threads(2);
  const fixture::LinearModel flow = fixture::TinyFlow();
  const auto model = Model::FromBytes(flow.model_json, flow.weights).value();
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const SolveInputs inputs{.entry = Entry::kState, .rows = fixture::TinyInputs(flow, 50)};
  auto measurer = Measurer::Make(*runtime, {.model = model,
                                            .direction = Direction::kNoiseToData,
                                            .inputs = inputs,
                                            .reference = ParsePlan("dopri5:1e-9").value(),
                                            .batch = 32});
  ASSERT_TRUE(measurer.ok()) << measurer.status();
  const auto euler = measurer->Measure(ParsePlan("euler:1").value(), nullptr);
  ASSERT_TRUE(euler.ok()) << euler.status();
  // The same from e^A, row by row.
  double expected = 0;
  for (int row = 0; row < 50; ++row) {
    const float* z = inputs.rows.as<float>().data() + 2 * row;
    const auto exact = fixture::ExactSolution(flow, Direction::kNoiseToData, {z[0], z[1]}, 1.0);
    const double x = z[0] + flow.a[0] * z[0] + flow.a[1] * z[1];
    const double y = z[1] + flow.a[2] * z[0] + flow.a[3] * z[1];
    expected += std::hypot(x - exact[0], y - exact[1]) / std::hypot(exact[0], exact[1]) / 50;
  }
  EXPECT_NEAR(euler->error_mean, expected, 1e-6);
  EXPECT_EQ(PrintPlan(euler->plan), "euler:1");
  EXPECT_EQ(euler->nfe, 1);
  EXPECT_EQ(euler->macs, static_cast<double>(model->field_macs()));
  EXPECT_EQ(euler->batch, 32);
  EXPECT_GT(euler->seconds_per_row, 0);
  ASSERT_EQ(euler->times.size(), 3u);
  EXPECT_EQ(euler->times[0].rows, 1);
  EXPECT_EQ(euler->times[1].rows, 8);
  EXPECT_EQ(euler->times[2].rows, 32);
  EXPECT_LE(euler->error_mean, euler->error_p99);
  EXPECT_EQ(euler->error_p99, euler->error_max) << "of 50 rows";
  // log p of the sample falls by the trace over the span, exactly, in every method.
  ASSERT_TRUE(euler->log_density_error.has_value());
  EXPECT_LT(*euler->log_density_error, 1e-4);
  EXPECT_NEAR(measurer->MeanError(ParsePlan("euler:1").value(), nullptr).value(), euler->error_mean,
              1e-15);
  EXPECT_EQ(at::get_num_threads(), 2) << "what trains beside it keeps its threads";
}

TEST(PictureTest, OneCurveForEachMethod) {
  const std::string plot =
      CalibrationPlot("rings", {Measured("heun:1", 100, 0.3), Measured("heun:2", 200, 0.1),
                                Measured("hyper_heun:1", 110, 0.01)});
  EXPECT_THAT(plot, HasSubstr("$heun << EOD\n0 100 0.3\n0 200 0.1\nEOD"));
  EXPECT_THAT(plot, HasSubstr("$hyper_heun << EOD\n0 110 0.01\nEOD"));
  EXPECT_THAT(plot, HasSubstr("title 'rings: mean"));
}

}  // namespace
}  // namespace hyperserve
