#include "core/model/repository/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

TEST(CalibrationTest, ReadsBackWhatItPrints) {
  const Calibration calibration = {
      .base_digest = "ab",
      .default_plan = *ParsePlan("dopri5:1e-4"),
      .default_error = 0.01,
      .reference = "dopri5:1e-6",
      .device = "cpu",
      .rows = 64,
      .plans = {{.plan = *ParsePlan("hyper_euler:2"),
                 .error_mean = 0.1,
                 .error_p99 = 0.2,
                 .error_max = 0.25,
                 .log_density_error = 0.125,
                 .agreement = 0.984375,
                 .nfe = 2,
                 .correction_evaluations = 2,
                 .macs = 3e10,
                 .seconds_per_row = 1.5e-4,
                 .batch = 32,
                 .times = {{.rows = 1, .seconds = 0.001}, {.rows = 32, .seconds = 0.0048}},
                 .wins = true,
                 .heavy_tail = true,
                 .bound = ErrorBound{.factor = 1.5, .rows = 40, .distances = {0, 0.25, 2}}},
                {.plan = *ParsePlan("euler:1"), .wins = false}}};
  const auto read = ParseCalibration(PrintCalibration(calibration));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(PrintCalibration(*read), PrintCalibration(calibration));
  EXPECT_EQ(read->base_digest, "ab");
  EXPECT_EQ(read->default_plan, *ParsePlan("dopri5:1e-4"));
  EXPECT_EQ(read->rows, 64);
  ASSERT_EQ(read->plans.size(), 2u);
  EXPECT_EQ(read->plans[0].plan, *ParsePlan("hyper_euler:2"));
  EXPECT_EQ(read->plans[0].seconds_per_row, 1.5e-4);
  EXPECT_EQ(read->plans[0].macs, 3e10);
  EXPECT_TRUE(read->plans[0].wins);
  EXPECT_TRUE(read->plans[0].heavy_tail);
  EXPECT_EQ(read->plans[0].error_p99, 0.2);
  EXPECT_EQ(read->plans[0].log_density_error, 0.125);
  EXPECT_EQ(read->plans[0].times, calibration.plans[0].times);
  EXPECT_EQ(read->plans[0].bound, calibration.plans[0].bound);
  EXPECT_EQ(read->plans[1].bound, std::nullopt);
  EXPECT_EQ(read->plans[1].log_density_error, std::nullopt);
  EXPECT_EQ(read->default_error, 0.01);
  EXPECT_FALSE(read->plans[1].wins);
}

TEST(CalibrationTest, RefusesWhatIsNotOne) {
  for (const char* json : {"",
                           "{}",
                           R"({"format": 2})",
                           R"({"format": 1, "colour": "red"})",
                           R"({"format": 1, "default_plan": "leapfrog:2"})",
                           R"({"format": 1, "default_plan": "default"})",
                           R"({"format": 1, "default_plan": "auto:1e-2/fast"})",
                           R"({"format": 1, "default_error": -1})",
                           R"({"format": 1, "default_plan": "rk4:2/fast"})",
                           R"({"format": 1, "plans": [{"plan": "default"}]})",
                           R"({"format": 1, "plans": [{"plan": "euler:0"}]})",
                           R"({"format": 1, "plans": [{"plan": "dopri5:0.00001"}]})",
                           R"({"format": 1, "plans": [{"plan": "euler:1", "error_mean": -1}]})",
                           R"({"format": 1, "plans": [{"plan": "euler:1", "error_p99": -1}]})",
                           R"({"format": 1, "plans": [{"plan": "euler:1",
                               "times": [{"rows": 2, "seconds": 1}, {"rows": 2, "seconds": 1}]}]})",
                           R"({"format": 1, "plans": [{"plan": "euler:1",
                               "times": [{"rows": 0, "seconds": 1}]}]})",
                           R"({"format": 1, "plans": [{"plan": "euler:1", "bound": {}}]})",
                           R"({"format": 1, "plans": [{"plan": "euler:1",
                               "bound": {"factor": 1, "rows": 9, "distances": [1]}}]})",
                           R"({"format": 1, "plans": [{"plan": "euler:1",
                               "bound": {"factor": 1, "rows": 9, "distances": [2, 1]}}]})",
                           R"({"format": 1, "plans": [{"plan": "euler:1",
                               "bound": {"factor": -1, "rows": 9, "distances": [1, 2]}}]})"}) {
    EXPECT_EQ(ParseCalibration(json).status().code(), absl::StatusCode::kInvalidArgument) << json;
  }
}

TEST(CalibrationTest, TakesFiniteNumbersFromZeroOnly) {
  for (const char* field :
       {"error_mean", "error_p99", "error_max", "log_density_error", "agreement", "nfe",
        "correction_evaluations", "macs", "seconds_per_row"}) {
    const auto parse = [&](const char* value) {
      return ParseCalibration(absl::StrCat(R"({"format": 1, "plans": [{"plan": "euler:1", ")",
                                           field, "\": ", value, "}]}"))
          .status();
    };
    EXPECT_TRUE(parse("0").ok()) << field;
    for (const char* value : {"\"NaN\"", "\"Infinity\"", "\"-Infinity\"", "-1"}) {
      const absl::Status status = parse(value);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << " " << value;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("plan 'euler:1': ", field, " is ")));
    }
  }
}

TEST(CalibrationTest, RefusalsNameTheEntry) {
  const auto refusal = [](const char* json) {
    return std::string(ParseCalibration(json).status().message());
  };
  EXPECT_THAT(refusal(R"({"format": 1, "default_plan": "default"})"),
              HasSubstr("default_plan: 'default' names no method"));
  EXPECT_THAT(refusal(R"({"format": 1, "plans": [{"plan": "euler:1"}, {"plan": "dopri5:0.1"}]})"),
              HasSubstr("plans[1]: plan 'dopri5:0.1' is spelled 'dopri5:1e-1'"));
  EXPECT_THAT(refusal(R"({"format": 1, "plans": [{"plan": "leapfrog:2"}]})"),
              HasSubstr("plans[0]: "));
}

TEST(CalibrationTest, FindsAPlanInItsTierOnly) {
  const Calibration calibration = {.plans = {{.plan = *ParsePlan("euler:4"), .nfe = 4},
                                             {.plan = *ParsePlan("alpha(0.75):2"), .nfe = 5},
                                             {.plan = *ParsePlan("euler:4/double"), .nfe = 6},
                                             {.plan = *ParsePlan("dopri5:1e-5"), .nfe = 7}}};
  for (const PlanCalibration& plan : calibration.plans) {
    const PlanCalibration* found = calibration.Find(plan.plan);
    ASSERT_NE(found, nullptr) << PrintPlan(plan.plan);
    EXPECT_EQ(found->nfe, plan.nfe);
  }
  for (const char* other : {"euler:5", "hyper_euler:4", "alpha(0.5):2", "dopri5:1e-5/double",
                            "dopri5:1e-5,1e-6", "tsit5:1e-5"}) {
    EXPECT_EQ(calibration.Find(*ParsePlan(other)), nullptr) << other;
  }
}

TEST(CalibrationTest, DefaultIsDopri5WhereNoneIsNamed) {
  EXPECT_EQ(PrintPlan(DefaultPlanOf({})), "dopri5:1e-5");
  EXPECT_EQ(PrintPlan(DefaultPlanOf({.default_plan = *ParsePlan("hyper_heun:2")})), "hyper_heun:2");
  const auto read = ParseCalibration(PrintCalibration({}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->default_plan, std::nullopt);
}

}  // namespace
}  // namespace hyperserve
