// What plans per row would save if the true errors were known, on errors that are made up.
#include "training/bounds/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/repository/calibration.h"
#include "core/plan/plan.h"
#include "training/bounds/bounded_plan.h"

namespace hyperserve {
namespace {

constexpr size_t kRows = 400;  // 200 of which count; 2 of them may miss

// A plan whose even rows err by 1, but for the first `exact` of them, which have no error; odd rows
// are not looked at.
BoundedPlan MakePlan(const std::string& name, size_t exact, double macs, double evaluation_macs) {
  BoundedPlan plan{.macs = macs, .evaluation_macs = evaluation_macs};
  plan.calibration.plan = ParsePlan(name).value();
  plan.calibration.macs = macs;
  for (size_t row = 0; row < kRows; ++row) {
    plan.errors.push_back(row % 2 == 0 && row / 2 < exact ? 0 : 1);
  }
  if (evaluation_macs > 0) plan.bounds = plan.errors;
  return plan;
}

TEST(OracleTest, EachRowPaysForOnePlanForFurtherEvaluationsOrForAllPlans) {
  const std::vector<BoundedPlan> plans = {MakePlan("learned:1", 100, 12, 10),
                                          MakePlan("learned:4", 200, 42, 40)};
  const OracleMacs macs = MacsOfOracles(plans, plans[1], 0.5, 0);
  // 102 rows end with the cheap plan, since two may miss.
  EXPECT_DOUBLE_EQ(macs.free, (102 * 12 + 98 * 42) / 200.0);
  EXPECT_DOUBLE_EQ(macs.reused, (102 * 12 + 98 * (12 + 32)) / 200.0);
  EXPECT_DOUBLE_EQ(macs.paid, (102 * 12 + 98 * (12 + 42)) / 200.0);
}

TEST(OracleTest, ALadderLeavesOutPlansThatEndTooFewRows) {
  const std::vector<BoundedPlan> plans = {MakePlan("learned:1", 20, 12, 10),
                                          MakePlan("learned:4", 200, 42, 40)};
  const OracleMacs macs = MacsOfOracles(plans, plans[1], 0.5, 0);
  EXPECT_DOUBLE_EQ(macs.free, (22 * 12 + 178 * 42) / 200.0);
  EXPECT_DOUBLE_EQ(macs.paid, 42) << "with learned:1 before it 50.07";
  EXPECT_DOUBLE_EQ(macs.reused, (22 * 12 + 178 * 44) / 200.0);
}

TEST(OracleTest, AClassicalPlanUsesNoEvaluationsAgain) {
  const std::vector<BoundedPlan> plans = {MakePlan("learned:1", 190, 12, 10),
                                          MakePlan("rk4:1", 200, 40, 0)};
  const OracleMacs macs = MacsOfOracles(plans, plans[1], 0.5, 0);
  EXPECT_DOUBLE_EQ(macs.reused, (192 * 12 + 8 * 52) / 200.0);
  EXPECT_DOUBLE_EQ(macs.paid, macs.reused);
}

TEST(OracleTest, ThePlanAloneMayMissByOneRowOfAHundred) {
  const std::vector<BoundedPlan> plans = {MakePlan("learned:1", 0, 12, 10),
                                          MakePlan("learned:4", 198, 42, 40)};
  // The rows that miss pay for the cheapest plan of the ladder.
  EXPECT_DOUBLE_EQ(MacsOfOracles(plans, plans[1], 0.5, 0).paid, 42);
  EXPECT_DOUBLE_EQ(MacsOfOracles(plans, plans[1], 0.5, 0).free, (2 * 12 + 198 * 42) / 200.0);
}

TEST(OracleTest, OfManyPlansSomeAreTried) {
  std::vector<BoundedPlan> plans;
  for (size_t n = 1; n <= 64; ++n) {
    plans.push_back(MakePlan(absl::StrCat("learned:", n), 3 * n, 12.0 * static_cast<double>(n),
                             10.0 * static_cast<double>(n)));
  }
  const Ladder rungs = RungsOf(plans, plans[40], 12 * 50.0);
  EXPECT_EQ(rungs.size(), kRungsMost + 1);
  EXPECT_EQ(std::ranges::count(rungs, &plans[40]), 1);
  EXPECT_TRUE(std::ranges::is_sorted(rungs));
  EXPECT_LE(rungs.back(), &plans[49]);
  plans.push_back(MakePlan("dopri5:1e-3", 200, 2000, 0));
  const OracleMacs macs = MacsOfOracles(plans, plans.back(), 0.5, 0);
  EXPECT_LT(macs.free, macs.reused);
  EXPECT_LT(macs.reused, macs.paid);
  EXPECT_LT(macs.paid, 2000);
}

}  // namespace
}  // namespace hyperserve
