#include "core/model/repository/choose_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/model/repository/calibration.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Row {
  const char* plan;
  double error, macs, milliseconds;
  bool heavy_tail = false;
};

// What the cases below choose among.
const std::vector<Row> kMeasured = {
    {"euler:1", 0.4, 100, 1.0},           {"euler:2", 0.2, 200, 2.0},
    {"midpoint:1", 0.1, 205, 2.2},        {"learned:2", 0.008, 230, 2.5},
    {"learned:3", 0.004, 300, 3.5, true}, {"rk4:1", 0.05, 400, 4.0},
    {"learned:4", 0.002, 410, 5.0},       {"dopri5:1e-3", 0.0011, 1400, 12.0},
    {"dopri5:1e-5", 1e-5, 3100, 30.0},
};

struct Choice {
  const char* wanted;
  const char* chosen;  // empty: nothing meets it
};

absl::StatusOr<PlanOption> Choose(const char* wanted) {
  static const std::vector<PlanCalibration> measured = [] {
    std::vector<PlanCalibration> all;
    for (const Row& row : kMeasured) {
      PlanCalibration& one = all.emplace_back();
      one.plan = *ParsePlan(row.plan);
      one.error_mean = row.error;
      one.macs = row.macs;
      one.heavy_tail = row.heavy_tail;
    }
    return all;
  }();
  std::vector<PlanOption> options;
  for (size_t i = 0; i < measured.size(); ++i) {
    options.push_back({.measured = &measured[i], .seconds = 1e-3 * kMeasured[i].milliseconds});
  }
  return ChoosePlan(std::get<AutoPlan>(ParsePlan(wanted)->choice), options);
}

class ChoosePlanTest : public ::testing::TestWithParam<Choice> {};

TEST_P(ChoosePlanTest, TheTable) {
  const auto chosen = Choose(GetParam().wanted);
  if (*GetParam().chosen == '\0') {
    EXPECT_EQ(chosen.status().code(), absl::StatusCode::kFailedPrecondition) << chosen.status();
    return;
  }
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(PrintPlan(chosen->measured->plan), GetParam().chosen);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ChoosePlanTest,
    ::testing::Values(Choice{"auto:1e0", "euler:1"},       // the fewest MACs
                      Choice{"auto:2e-1", "midpoint:1"},   // of about equal MACs the smaller error
                      Choice{"auto:1e-1", "midpoint:1"},   // at the target itself
                      Choice{"auto:1e-2", "learned:2"},    // hypersolved plans too
                      Choice{"auto:5e-3", "learned:4"},    // never one with a heavy tail
                      Choice{"auto:1e-5", "dopri5:1e-5"},  // adaptive plans too
                      Choice{"auto:9e-6", ""},             // nothing is so accurate
                      Choice{"auto:2.1ms", "euler:2"},     // the least error in the time
                      Choice{"auto:4ms", "learned:2"},     // not the one with a heavy tail
                      Choice{"auto:1000ms", "dopri5:1e-5"},   // all have the time
                      Choice{"auto:0.5ms", ""},               // nothing is so fast
                      Choice{"auto:1e-1,3ms", "midpoint:1"},  // both: the fewest MACs in the time
                      Choice{"auto:1e-1,2.1ms", ""},          // the target, but not in the time
                      Choice{"auto:5e-3,5ms", "learned:4"}));

TEST(ChoosePlanRefusalTest, RefusalsSayWhatIsPossible) {
  const auto words = [](const char* wanted) {
    return std::string(Choose(wanted).status().message());
  };
  EXPECT_THAT(words("auto:9e-6"),
              AllOf(HasSubstr("'auto:9e-6'"),
                    HasSubstr("the most accurate is 'dopri5:1e-5' (error 1e-05, 30 ms)")));
  EXPECT_THAT(words("auto:0.5ms"), HasSubstr("the fastest 'euler:1' (error 0.4, 1 ms)"));
  EXPECT_THAT(words("auto:1e-1,2.1ms"), HasSubstr("within the time 'euler:2' (error 0.2, 2 ms)"));
  EXPECT_THAT(std::string(ChoosePlan({.target_error = 1}, {}).status().message()),
              HasSubstr("none was measured"));
}

TEST(SecondsOfTest, BetweenAndBeyondTheMeasuredBatches) {
  PlanCalibration plan;
  plan.seconds_per_row = 0.5;
  EXPECT_EQ(SecondsOf(plan, 4), 2.0);  // an older file
  plan.times = {{.rows = 2, .seconds = 1.0}, {.rows = 10, .seconds = 3.0}};
  EXPECT_EQ(SecondsOf(plan, 1), 1.0);
  EXPECT_EQ(SecondsOf(plan, 2), 1.0);
  EXPECT_EQ(SecondsOf(plan, 6), 2.0);
  EXPECT_EQ(SecondsOf(plan, 10), 3.0);
  EXPECT_EQ(SecondsOf(plan, 25), 7.5);
}

}  // namespace
}  // namespace hyperserve
