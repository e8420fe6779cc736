#include "server/calls/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/engine/batch_spec.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/plan/plan.h"
#include "server/calls/limits.h"
#include "server/registry/served_model.h"
#include "tests/server/calls/served_fixture.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

class JobTest : public testing::Test {
 protected:
  double Field() const { return static_cast<double>(served_->model->field_macs()); }
  double Predict() const { return PredictRow(job_).macs(); }
  void Ask(const std::string& plan) { job_.plan.plan = *ParsePlan(plan); }

  std::shared_ptr<ServedModel> served_ = ServedTinyFlow();
  Job job_{.served = served_, .plan = {.max_steps = 10000}, .task = {.entry = Entry::kNoise}};
};

TEST_F(JobTest, FixedPlansFollowFromTheSpec) {
  ASSERT_GT(Field(), 0);
  Ask("rk4:10");
  EXPECT_EQ(Predict(), 40 * Field());
  Ask("dopri5:2");
  EXPECT_EQ(Predict(), 12 * Field());
  Ask("hyper_heun:3");
  job_.plan.generation = served_->corrections[0].active;
  const auto correction = static_cast<double>(job_.plan.generation->correction->macs());
  ASSERT_GT(correction, 0);
  EXPECT_EQ(Predict(), 6 * Field() + 3 * correction);
}

// What the batcher orders by: evaluations, and what one costs.
TEST_F(JobTest, AnEvaluationCarriesItsShareOfTheCorrection) {
  Ask("hyper_heun:3");
  job_.plan.generation = served_->corrections[0].active;
  const auto correction = static_cast<double>(job_.plan.generation->correction->macs());
  EXPECT_EQ(PredictRow(job_).evaluations, 6);
  EXPECT_EQ(PredictRow(job_).evaluation_macs, Field() + correction / 2);
}

TEST_F(JobTest, ATangentOfEachDimensionIsAPass) {
  Ask("euler:5");
  job_.task.log_density = true;
  EXPECT_EQ(Predict(), 3 * 5 * Field());
  // The state of a corrected plan is solved apart, where it is wanted.
  Ask("hyper_heun:3");
  job_.plan.generation = served_->corrections[0].active;
  const auto correction = static_cast<double>(job_.plan.generation->correction->macs());
  EXPECT_EQ(Predict(), 4 * (6 * Field() + 3 * correction));
  job_.task.want_state = false;
  EXPECT_EQ(Predict(), 3 * (6 * Field() + 3 * correction));
}

TEST_F(JobTest, SavedStatesCount) {
  Ask("rk4:10");
  for (int k = 1; k <= 4; ++k) job_.task.save_at.push_back(0.2 * k);
  const double four = Predict();
  EXPECT_GT(four, (40 + 4) * Field());
  for (int k = 0; k < 1000; ++k) job_.task.save_at.push_back(0.81 + 1e-5 * k);
  EXPECT_EQ(PredictRow(job_).evaluations, 50);  // one slope for each step
  EXPECT_GT(Predict(), four + 1000 * 2);
}

TEST_F(JobTest, MapsCountOnce) {
  const auto classifier = ServedTinyClassifier();
  const Model& model = *classifier->model;
  job_.served = classifier;
  job_.task = {.entry = Entry::kInput, .want_outputs = true};
  Ask("euler:2");
  EXPECT_EQ(Predict(),
            static_cast<double>(model.stem_macs() + 2 * model.field_macs() + model.head_macs()));
}

TEST_F(JobTest, AdaptivePlansFollowTheirCalibration) {
  std::vector<PlanCalibration>& plans = served_->calibration.plans;
  plans.clear();
  Ask("dopri5:1e-5");
  EXPECT_EQ(Predict(), 100 * Field());
  plans = {{.plan = *ParsePlan("euler:64"), .nfe = 64},
           {.plan = *ParsePlan("dopri5:1e-3"), .nfe = 20},
           {.plan = *ParsePlan("dopri5:1e-6"), .nfe = 50}};
  EXPECT_EQ(Predict(), 50 * Field());
  plans.push_back({.plan = *ParsePlan("dopri5:1e-5"), .nfe = 38});
  EXPECT_EQ(Predict(), 38 * Field());
  job_.task.span = {0.0, 3.0};
  EXPECT_EQ(Predict(), 3 * 38 * Field());
  job_.plan.max_steps = 2;
  EXPECT_EQ(Predict(), 12 * Field());
}

TEST_F(JobTest, BoundsARequestAndItsBatches) {
  Ask("euler:100");
  job_.rows = 7;
  job_.row_bytes = 3;
  CallLimits limits = LimitsWith();
  limits.request_macs_max = 700 * Field();
  limits.batch_macs_max = 21 * Field();
  absl::StatusOr<JobSize> size = SizeOf(job_, limits);
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(size->bytes, 21);
  EXPECT_EQ(static_cast<double>(size->macs), 700 * Field());
  EXPECT_EQ(size->batch_rows_max, 16);
  Ask("euler:100/double");
  EXPECT_EQ(SizeOf(job_, limits)->batch_rows_max, 4);
  limits.batch_macs_max = 1;
  EXPECT_EQ(SizeOf(job_, limits)->batch_rows_max, 1);
  job_.rows = 8;
  const auto refusal = [&] {
    const absl::Status status = SizeOf(job_, limits).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(), HasSubstr("(8 rows, "));
  EXPECT_THAT(refusal(), HasSubstr("pending_macs_max"));
  job_.row_bytes = limits.request_bytes_max / 8 + 1;
  EXPECT_THAT(refusal(), HasSubstr("268435464 bytes of inputs and outputs (8 rows, 33554433 each), "
                                   "more than queue_bytes_max"));
}

TEST_F(JobTest, WhatIsKeptOfARowCountsForTheRowsUnderWay) {
  Ask("euler:10");
  job_.rows = 100;
  job_.row_bytes = 3;
  job_.kept_row_bytes = 1000;
  CallLimits limits = LimitsWith({.live_runs_max = 5});
  limits.batch_macs_max = 4 * Field();
  EXPECT_EQ(SizeOf(job_, limits)->bytes, 300 + 4 * 5 * 1000);
  job_.rows = 7;
  EXPECT_EQ(SizeOf(job_, limits)->bytes, 21 + 7 * 1000);
}

TEST_F(JobTest, ABatchIsBoundByThePassesThatGoTogether) {
  Ask("euler:10");
  CallLimits limits = LimitsWith();
  limits.batch_macs_max = 21 * Field();
  job_.task.derivative = Derivative::kJvp;  // the tangents go along
  EXPECT_EQ(SizeOf(job_, limits)->batch_rows_max, 8);
  job_.task.derivative = Derivative::kVjp;  // to the end, then back
  EXPECT_EQ(SizeOf(job_, limits)->batch_rows_max, 16);
}

}  // namespace
}  // namespace hyperserve
