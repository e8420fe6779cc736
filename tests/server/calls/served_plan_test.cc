#include "server/calls/served_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/engine/batch_spec.h"
#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "server/calls/task.h"
#include "server/registry/served_model.h"
#include "tests/server/calls/served_fixture.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

PlanCalibration Measured(const char* plan, double error, double macs, double milliseconds) {
  PlanCalibration one;
  one.plan = *ParsePlan(plan);
  one.error_mean = error;
  one.macs = macs;
  one.times = {{.rows = 1, .seconds = 1e-3 * milliseconds},
               {.rows = 10, .seconds = 1e-2 * milliseconds}};
  return one;
}

// A flow with hyper_heun of generation 7, which claims K = 1, 2, 4.
class ServedPlanTest : public ::testing::Test {
 protected:
  ServedPlanTest() {
    Calibration& classical = served_->calibration;
    classical.plans = {Measured("euler:1", 0.3, 100, 1), Measured("heun:2", 0.02, 400, 4),
                       Measured("rk4:2", 0.001, 800, 8), Measured("heun:2/double", 0.019, 400, 40)};
    classical.plans[2].log_density_error = 0.01;
    classical.default_error = 0.05;
    auto generation = std::make_shared<Generation>(*served_->corrections[0].active);
    generation->calibration.plans = {Measured("hyper_heun:1", 0.01, 220, 2.5)};
    served_->corrections[0].active = std::move(generation);
  }
  Task Sampling(int64_t rows = 1) const {
    return {.direction = Direction::kNoiseToData,
            .span = served_->model->spec().span,
            .entry = Entry::kNoise,
            .rows = rows};
  }
  std::string Chosen(const std::string& asked, const Task& task) {
    const auto plan = PlanFor(*ParsePlan(asked), *served_, task);
    if (!plan.ok()) return std::string(plan.status().message());
    reason_ = plan->reason;
    return PrintPlan(plan->plan);
  }

  std::shared_ptr<ServedModel> served_ = ServedTinyFlow();
  std::string reason_;  // of the last Chosen
};

TEST_F(ServedPlanTest, APlanThatIsNamedRuns) {
  EXPECT_EQ(Chosen("heun:3", Sampling()), "heun:3");
  EXPECT_EQ(reason_, "");
  EXPECT_EQ(Chosen("hyper_heun:2", Sampling()), "hyper_heun:2");  // served or not
}

TEST_F(ServedPlanTest, GuidanceTakesNoPlanThatWasMeasuredWithoutIt) {
  served_->calibration.default_plan = *ParsePlan("hyper_heun:1");
  EXPECT_EQ(Chosen("default", Sampling()), "hyper_heun:1");
  Task guided = Sampling();
  guided.guidance = 1;
  EXPECT_EQ(Chosen("default", guided), "dopri5:1e-5");
  EXPECT_THAT(reason_, HasSubstr("'hyper_heun:1' does not fit what is asked"));
  EXPECT_THAT(Chosen("auto:2e-2", guided), HasSubstr("none was measured for what is asked"));
  served_->calibration.default_plan = *ParsePlan("rk4:2");
  EXPECT_EQ(Chosen("default", guided), "rk4:2");
}

TEST_F(ServedPlanTest, AutomaticPlansChooseAmongWhatIsServed) {
  EXPECT_EQ(Chosen("auto:2e-2", Sampling()), "hyper_heun:1");
  EXPECT_THAT(reason_, HasSubstr("'auto:2e-2'"));
  EXPECT_EQ(Chosen("auto:1e-3", Sampling()), "rk4:2");
  EXPECT_EQ(Chosen("auto:2e-2/double", Sampling()), "heun:2/double");
  EXPECT_THAT(Chosen("auto:2e-2/fast", Sampling()), HasSubstr("tier fast"));
  served_->corrections[0].active = nullptr;
  EXPECT_EQ(Chosen("auto:2e-2", Sampling()), "heun:2");
}

TEST_F(ServedPlanTest, ADerivativeTakesFixedPlansOnly) {
  served_->calibration.plans.push_back(Measured("dopri5:1e-2", 0.015, 50, 1));
  Task task = Sampling();
  EXPECT_EQ(Chosen("auto:2e-2", task), "dopri5:1e-2");
  task.derivative = Derivative::kVjp;
  EXPECT_EQ(Chosen("auto:2e-2", task), "hyper_heun:1");
}

TEST_F(ServedPlanTest, TheBudgetIsForAllRows) {
  EXPECT_EQ(Chosen("auto:8ms", Sampling()), "rk4:2");
  EXPECT_EQ(Chosen("auto:8ms", Sampling(2)), "hyper_heun:1");
  EXPECT_EQ(Chosen("auto:12ms", Sampling(10)), "euler:1");
  EXPECT_THAT(Chosen("auto:8ms", Sampling(100)), HasSubstr("the fastest 'euler:1'"));
}

TEST_F(ServedPlanTest, WhatWasMeasuredHoldsForItsTaskOnly) {
  Task backwards = Sampling();
  backwards.direction = Direction::kDataToNoise;
  EXPECT_THAT(Chosen("auto:2e-2", backwards), HasSubstr("none was measured"));
  Task shorter = Sampling();
  shorter.span[1] /= 2;
  EXPECT_THAT(Chosen("auto:2e-2", shorter), HasSubstr("none was measured"));
  Task dense = Sampling();
  dense.log_density = true;
  EXPECT_EQ(Chosen("auto:2e-2", dense), "rk4:2");  // the only one whose density was measured
}

TEST_F(ServedPlanTest, DefaultsMayBeAutomaticOrHypersolved) {
  served_->calibration.default_plan = *ParsePlan("auto:2e-2");
  EXPECT_EQ(Chosen("default", Sampling()), "hyper_heun:1");
  EXPECT_EQ(Chosen("default/double", Sampling()), "hyper_heun:1/double");
  served_->calibration.default_plan = *ParsePlan("hyper_heun:1");
  EXPECT_EQ(Chosen("default", Sampling()), "hyper_heun:1");
  EXPECT_EQ(reason_, "");
}

TEST_F(ServedPlanTest, ADefaultThatDoesNotFitTheTaskIsReplaced) {
  Task backwards = Sampling();
  backwards.direction = Direction::kDataToNoise;
  for (const char* plan : {"auto:2e-2", "hyper_heun:1"}) {
    served_->calibration.default_plan = *ParsePlan(plan);
    EXPECT_EQ(Chosen("default", backwards), "dopri5:1e-5") << plan;
    EXPECT_THAT(reason_, HasSubstr(plan));
  }
}

TEST_F(ServedPlanTest, TheDefaultIsTheSameWhetherTheDensityIsAskedForOrNot) {
  Task dense = Sampling();
  dense.log_density = true;
  for (const char* plan : {"auto:2e-2", "hyper_heun:1", "heun:2"}) {
    served_->calibration.default_plan = *ParsePlan(plan);
    EXPECT_EQ(Chosen("default", dense), Chosen("default", Sampling())) << plan;
  }
}

TEST_F(ServedPlanTest, ADefaultThatIsNotServedFallsToTheBestClassicalPlan) {
  served_->calibration.default_plan = *ParsePlan("hyper_heun:1");
  EXPECT_EQ(DefaultOf(*served_).reason, "");
  served_->corrections[0].active = nullptr;
  served_->corrections[0].problem = "generation 7 is of another base";
  EXPECT_EQ(Chosen("default", Sampling()), "heun:2");  // the cheapest within default_error
  EXPECT_THAT(reason_, HasSubstr("'hyper_heun:1' is replaced by 'heun:2': generation 7 is of"));
  EXPECT_EQ(DefaultOf(*served_).reason, reason_);
  served_->calibration.default_error = 1e-9;
  EXPECT_EQ(Chosen("default", Sampling()), "rk4:2");  // else the most accurate
  served_->calibration.plans.clear();
  EXPECT_EQ(Chosen("default", Sampling()), "dopri5:1e-5");
  served_->calibration.default_plan = *ParsePlan("learned:4");
  EXPECT_THAT(DefaultOf(*served_).reason, HasSubstr("no such hypersolver"));
}

}  // namespace
}  // namespace hyperserve
