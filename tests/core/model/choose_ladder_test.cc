#include "core/model/repository/choose_ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/choose_plan.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Row {
  const char* plan;
  double p99, macs;
  // Half of the rows have a bound below the middle, a quarter below its half; 0: no bound.
  double middle = 0;
  bool heavy_tail = false;
};

// What the cases below choose among.
const std::vector<Row> kMeasured = {
    {"learned:1", 0.4, 100, 0.2},    {"learned:2", 0.2, 200, 0.1},   {"learned:4", 0.03, 400, 0.01},
    {"learned:6", 0.02, 600, 0.02},  // its bounds are wider than those of a cheaper plan
    {"learned:8", 0.01, 800, 0.002}, {"rk4:1", 0.001, 780, 0, true}, {"dopri5:1e-3", 0.004, 3000},
    {"dopri5:1e-4", 0.0004, 4000},
};

std::vector<PlanCalibration> Calibrations(const std::vector<Row>& rows) {
  std::vector<PlanCalibration> all;
  for (const Row& row : rows) {
    PlanCalibration& one = all.emplace_back();
    one.plan = *ParsePlan(row.plan);
    one.error_p99 = row.p99;
    one.macs = row.macs;
    one.heavy_tail = row.heavy_tail;
    if (row.middle > 0) {
      one.bound = {.factor = 2, .rows = 100, .distances = {0, row.middle / 2, row.middle}};
    }
  }
  return all;
}

std::string Chosen(double target, const std::vector<Row>& rows = kMeasured) {
  const std::vector<PlanCalibration> measured = Calibrations(rows);
  std::vector<PlanOption> options;
  for (const PlanCalibration& one : measured) options.push_back({.measured = &one});
  const auto ladder = ChooseLadder(target, options);
  if (!ladder.ok()) return std::string(ladder.status().message());
  return absl::StrJoin(*ladder, " ", [](std::string* out, const PlanOption& option) {
    out->append(PrintPlan(option.measured->plan));
  });
}

struct Case {
  double target;
  const char* chosen;
};

class ChooseLadderTest : public ::testing::TestWithParam<Case> {};

TEST_P(ChooseLadderTest, TheTable) { EXPECT_EQ(Chosen(GetParam().target), GetParam().chosen); }

INSTANTIATE_TEST_SUITE_P(
    Cases, ChooseLadderTest,
    ::testing::Values(
        // The cheapest plan is good enough for all rows.
        Case{0.5, "learned:1"},
        // Half of the rows end with learned:1: 100 + 200 / 2 costs what learned:2 does.
        Case{0.2, "learned:2"},
        // 3 of 4 rows end with learned:1, and the rest with learned:2: 100 + 200 / 4.
        Case{0.3, "learned:1 learned:2"},
        // learned:1 ends 12.5 % and learned:2 25 %: 200 + 0.75 * 400 is more than 400.
        Case{0.05, "learned:4"},
        // learned:4 ends every row, although its percentile is above the target.
        Case{0.02, "learned:4 learned:6"},
        // learned:4 ends half of the rows, learned:6 fewer than it, for more MACs.
        Case{0.01, "learned:8"},
        // learned:8 ends every row. learned:4 before it would end a fifth: 400 + 0.8 * 800.
        Case{0.004, "learned:8 dopri5:1e-3"},
        // 800 + 0.75 * 4000.
        Case{0.001, "learned:8 dopri5:1e-4"},
        // 800 + 0.9 * 4000 is more than 4000.
        Case{0.0004, "dopri5:1e-4"}));

TEST(ChooseLadder, EachPlanEndsMoreRowsThanThoseBeforeIt) {
  // Every rung pays: 100 + 0.5 * 400 + 0.25 * 3000 against 100 + 0.5 * 3000, 400 + 0.25 * 3000.
  const std::vector<Row> rows = {{"learned:1", 1, 100, 0.1},
                                 {"learned:2", 1, 400, 0.2 / 3},
                                 {"learned:3", 1, 500, 0.1},
                                 {"dopri5:1e-3", 0.01, 3000}};
  EXPECT_EQ(Chosen(0.1, rows), "learned:1 learned:2 dopri5:1e-3");
}

TEST(ChooseLadder, WithoutALastPlanItSaysWhatIsPossible) {
  EXPECT_THAT(Chosen(1e-5), AllOf(HasSubstr("99 %"), HasSubstr("'dopri5:1e-4' has 0.0004")));
  EXPECT_THAT(Chosen(1e-5, {}), HasSubstr("no plan was measured"));
  EXPECT_THAT(Chosen(1, {{"rk4:1", 0.001, 780, 0, true}}), HasSubstr("no plan was measured"));
}

TEST(ChooseLadder, OlderFilesTellTheLargestError) {
  std::vector<PlanCalibration> measured = Calibrations({{"euler:1", 0, 100}, {"rk4:1", 0, 400}});
  measured[0].error_max = 0.5;
  measured[1].error_max = 0.01;
  const auto ladder = ChooseLadder(0.1, {{.measured = &measured[0]}, {.measured = &measured[1]}});
  ASSERT_TRUE(ladder.ok()) << ladder.status();
  EXPECT_EQ(PrintPlan(ladder->front().measured->plan), "rk4:1");
}

}  // namespace
}  // namespace hyperserve
