// Adaptive solves in the flow kernel: their errors against the twin, and the promises of flow.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/kernels/flow/flow.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/ode/tableau.h"
#include "tests/core/kernels/flow_fixture.h"

namespace hyperserve::kernels {
namespace {

using AdaptiveTest = FlowTest;

FlowAdaptivePlan AdaptivePlanOf(const Case& of, double tolerance) {
  return {.against = of.plan.against, .s0 = of.plan.s0, .rtol = tolerance, .atol = tolerance};
}

// The global error is a few times the tolerance; more where slopes jump. What tier exact adds to it
// stays below 1e-6.
TEST_F(AdaptiveTest, AdaptiveSolvesKeepTheirTolerance) {
  for (const Case& of : Cases()) {
    if (of.hidden.size() > 3) continue;  // as two halves each, its weights do not fit
    const FlowModel model = ModelOf(of);
    constexpr int64_t kRows = 8;
    const std::vector<float> z0 = Normals(kRows * of.dimensions, 9);
    const double tolerances = of.activation == FlowActivation::kRectifier ? 100.0 : 3.0;
    const FlowPlan reference{
        .tableau = kDopri5Tableau, .steps = 16, .against = of.plan.against, .s0 = of.plan.s0};
    for (const double tolerance : {1e-3, 1e-5}) {
      const Solved solved = Solve(model, AdaptivePlanOf(of, tolerance), kRows, z0);
      const double error = Error(model, reference, z0, solved.z, 0.0);
      EXPECT_LT(error, tolerances * tolerance)
          << static_cast<int>(of.activation) << " " << of.dimensions;
      double evaluations = 0.0;
      for (const int32_t count : solved.evaluations) {
        EXPECT_GE(count, 8);
        EXPECT_EQ((count - 2) % 6, 0);
        evaluations += static_cast<double>(count) / kRows;
      }
      for (const uint8_t fit : solved.unfit) EXPECT_EQ(fit, kRowFits);
      std::printf("  adaptive: activation %d, %d dimensions, %.0e: %.2e, %.1f evaluations\n",
                  static_cast<int>(of.activation), of.dimensions, tolerance, error, evaluations);
    }
  }
}

TEST_F(AdaptiveTest, AnAdaptiveRowsBitsDoNotDependOnTheBatch) {
  for (const size_t which : {size_t{0}, size_t{2}}) {
    const Case of = Cases()[which];
    const FlowModel model = ModelOf(of);
    const FlowAdaptivePlan plan = AdaptivePlanOf(of, 1e-5);
    const int64_t dimensions = of.dimensions, count = 70001;
    const Solved all = Solve(model, plan, count, std::nullopt, 1000);
    const Solved again = Solve(model, plan, count, std::nullopt, 1000);
    EXPECT_EQ(all.z, again.z);
    EXPECT_EQ(all.evaluations, again.evaluations);
    for (const int64_t begin : {int64_t{0}, int64_t{13}, count - 100}) {
      for (const int64_t rows : {1, 17, 100}) {
        const Solved part = Solve(model, plan, rows, std::nullopt, 1000 + begin);
        EXPECT_TRUE(std::equal(part.z.begin(), part.z.end(), all.z.begin() + begin * dimensions));
        EXPECT_TRUE(std::equal(part.evaluations.begin(), part.evaluations.end(),
                               all.evaluations.begin() + begin));
      }
    }
  }
}

TEST_F(AdaptiveTest, AdaptiveLaunchesEnd) {
  const Case of = Cases()[0];
  const FlowModel model = ModelOf(of);
  const FlowAdaptivePlan plan = AdaptivePlanOf(of, 1e-6);
  constexpr int64_t kRows = 2 << 20;
  const Solved solved = Solve(model, plan, kRows, std::nullopt);
  const auto ended = std::ranges::count(solved.unfit, kRowFits);
  EXPECT_EQ(ended + std::ranges::count(solved.unfit, kRowUnfinished), kRows);
  EXPECT_GT(ended, 1000);
  EXPECT_EQ(solved.unfit.back(), kRowUnfinished);
  const Solved few = Solve(model, plan, 1000, std::nullopt);
  EXPECT_EQ(few.z, std::vector<float>(solved.z.begin(), solved.z.begin() + 2000));
}

TEST_F(AdaptiveTest, AdaptiveRowsThatLeadNowhereAreNamed) {
  const FlowModel model = ModelOf(Cases()[0]);
  std::vector<float> z0 = Normals(2 * 100, 8);
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(), -1e6f};
  for (size_t i = 0; i < 3; ++i) z0[2 * (30 * i + 5) + i % 2] = bad[i];
  FlowAdaptivePlan plan = AdaptivePlanOf(Cases()[0], 1e-5);
  const Solved solved = Solve(model, plan, 100, z0);
  for (size_t row = 0; row < 100; ++row) {
    EXPECT_EQ(solved.unfit[row], row == 5 || row == 35 || row == 65 ? kRowUnfit : kRowFits) << row;
  }
  plan.attempts_max = 1;
  for (const uint8_t fit : Solve(model, plan, 10, std::nullopt).unfit) EXPECT_EQ(fit, kRowUnfit);
}

}  // namespace
}  // namespace hyperserve::kernels
