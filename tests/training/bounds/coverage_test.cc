// What plans per row save, on errors and bounds that are made up.
#include "training/bounds/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/model/repository/calibration.h"
#include "core/plan/plan.h"
#include "training/bounds/bounded_plan.h"

namespace hyperserve {
namespace {

constexpr size_t kRows = 1000;

// A plan whose bounds are its errors: `many` for 24 of 25 rows, `few` for the others.
BoundedPlan MakePlan(const char* name, double many, double few, double macs) {
  BoundedPlan plan{.macs = macs, .evaluation_macs = macs};
  plan.calibration.plan = ParsePlan(name).value();
  plan.calibration.error_p99 = few;
  plan.calibration.macs = macs;
  std::vector<double> quantiles(40, many);
  quantiles.push_back(few);
  plan.calibration.bound = ErrorBound{.factor = 1, .rows = kRows, .distances = quantiles};
  for (size_t row = 0; row < kRows; ++row) plan.errors.push_back(row % 50 < 2 ? few : many);
  plan.bounds = plan.errors;
  return plan;
}

TEST(SavingsTest, PlansPerRowCostLessBetweenThePercentilesOfTwoPlans) {
  const std::vector<BoundedPlan> plans = {MakePlan("learned:1", 0.01, 0.5, 1e6),
                                          MakePlan("learned:4", 0.001, 0.001, 1e7)};
  const std::vector<std::string> lines = absl::StrSplit(SavingsTable(plans), '\n');
  ASSERT_EQ(lines.size(), 1 + 1 + 4 + 1u);
  using ::testing::HasSubstr;
  EXPECT_THAT(lines[1],
              AllOf(HasSubstr("learned:1"), HasSubstr("5.000e-01"), HasSubstr("no gain")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("learned:4"), HasSubstr("1.000e-03"), HasSubstr("no gain")))
      << "at the dear plan's own percentile no row may end with the cheap one";
  EXPECT_THAT(lines[3], AllOf(HasSubstr("4.729e-03"), HasSubstr("no gain")));
  for (const int line : {4, 5}) {
    // Each row pays for the cheap plan, one of 25 for the dear one too: 1.4e6 in the place of 1e7.
    EXPECT_THAT(lines[line], AllOf(HasSubstr("-86%"), HasSubstr("learned:1 learned:4")));
    // Who knows the errors lets five of the twenty dear rows of 500 miss.
    EXPECT_THAT(lines[line], HasSubstr("1.000e-03     -87%     -87%     -87%  1.000e-02"))
        << "99 % alone, and per row";
  }
}

}  // namespace
}  // namespace hyperserve
