// Ladders with thresholds of their own, on errors and bounds that are made up.
#include "training/bounds/tune.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "core/model/repository/calibration.h"
#include "core/plan/plan.h"
#include "training/bounds/bounded_plan.h"

namespace hyperserve {
namespace {

constexpr size_t kRows = 400;  // 200 of them are even

// A plan without an error on the first `exact` rows, and with an error of 1 on the others. Its
// bounds put the rows into the right order, but say nothing of the size of an error.
BoundedPlan MakePlan(const char* name, size_t exact, double macs, double evaluation_macs) {
  BoundedPlan plan{.macs = macs + 1, .evaluation_macs = evaluation_macs};
  plan.calibration.plan = ParsePlan(name).value();
  plan.calibration.macs = macs;
  for (size_t row = 0; row < kRows; ++row) {
    plan.errors.push_back(row < exact ? 0 : 1);
    plan.bounds.push_back(100 + static_cast<double>(row));
  }
  return plan;
}

TEST(TuneTest, AThresholdEndsTheRowsThatNeedNotGoOn) {
  const std::vector<BoundedPlan> plans = {MakePlan("learned:1", 200, 12, 10),
                                          MakePlan("learned:4", 400, 42, 40)};
  const TunedLadder tuned = Tune(plans, plans[1], 0.5, false);
  EXPECT_EQ(tuned.ladder, (Ladder{&plans[0], &plans[1]}));
  EXPECT_EQ(tuned.thresholds[0], 100 + 198) << "that of the last even row without an error";
  const Outcome paid = OutcomeOf(tuned.ladder, tuned.thresholds, {.distances = true}, 0);
  EXPECT_EQ(paid.p99, 0);
  EXPECT_DOUBLE_EQ(paid.macs, 13 + 0.5 * 42) << "the distance of the first plan is paid, too";
  const TunedLadder reused = Tune(plans, plans[1], 0.5, true);
  EXPECT_DOUBLE_EQ(
      OutcomeOf(reused.ladder, reused.thresholds, {.reused = true, .distances = true}, 0).macs,
      13 + 0.5 * 32);
}

TEST(TuneTest, ThreePlansHaveAThresholdEach) {
  const std::vector<BoundedPlan> plans = {MakePlan("learned:1", 200, 2, 1),
                                          MakePlan("learned:2", 300, 22, 20),
                                          MakePlan("learned:8", 400, 82, 80)};
  const TunedLadder tuned = Tune(plans, plans[2], 0.5, false);
  EXPECT_EQ(tuned.ladder.size(), 3u);
  EXPECT_EQ(tuned.thresholds[0], 100 + 198);
  EXPECT_EQ(tuned.thresholds[1], 100 + 298);
  EXPECT_DOUBLE_EQ(OutcomeOf(tuned.ladder, tuned.thresholds, {.distances = true}, 0).macs,
                   3 + 0.5 * 23 + 0.25 * 82);
}

TEST(TuneTest, NoLadderWhereNoRowIsSpared) {
  const std::vector<BoundedPlan> plans = {MakePlan("learned:1", 0, 12, 10),
                                          MakePlan("learned:4", 400, 42, 40)};
  EXPECT_TRUE(Tune(plans, plans[1], 0.5, false).ladder.empty());
}

}  // namespace
}  // namespace hyperserve
