#include "server/rpc/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/rpc/served_fixture.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

class PredictTest : public testing::Test {
 protected:
  double Field() const { return static_cast<double>(served_->model->field_macs()); }
  double Correction() const { return static_cast<double>(correction_->macs()); }
  double Predict() const { return PredictRowMacs(spec_, calibration_); }

  std::shared_ptr<ServedModel> served_ = ServedTinyFlow();
  std::shared_ptr<const Hypersolver> correction_ = served_->corrections[0].active->correction;
  BatchSpec spec_{.model = served_->model, .correction = nullptr, .entry = Entry::kNoise};
  Calibration calibration_;
};

TEST_F(PredictTest, FixedPlansFollowFromTheSpec) {
  ASSERT_GT(Field(), 0);
  ASSERT_GT(Correction(), 0);
  spec_.plan = FixedPlan{.method = {Method::kRk4}, .steps = 10};
  EXPECT_EQ(Predict(), 40 * Field());
  spec_.plan = FixedPlan{.method = {Method::kDopri5}, .steps = 2};
  EXPECT_EQ(Predict(), 12 * Field());
  spec_.plan = FixedPlan{.method = {Method::kHeun}, .steps = 3, .hypersolved = true};
  spec_.correction = correction_;
  EXPECT_EQ(Predict(), 6 * Field() + 3 * Correction());
}

TEST_F(PredictTest, ATangentOfEachDimensionIsAPass) {
  spec_.plan = FixedPlan{.method = {Method::kEuler}, .steps = 5};
  spec_.log_density = LogDensity::kDivergence;
  EXPECT_EQ(Predict(), 3 * 5 * Field());
}

TEST_F(PredictTest, MapsCountOnce) {
  const std::shared_ptr<const Model> model = ServedTinyClassifier()->model;
  spec_ = {.model = model, .plan = FixedPlan{.steps = 2}, .want_outputs = true};
  EXPECT_EQ(Predict(),
            static_cast<double>(model->stem_macs() + 2 * model->field_macs() + model->head_macs()));
}

TEST_F(PredictTest, AdaptivePlansFollowTheirCalibration) {
  const AdaptivePlan asked{.method = {Method::kDopri5}, .rtol = 1e-5, .atol = 1e-5};
  spec_.plan = asked;
  EXPECT_EQ(Predict(), 100 * Field());
  calibration_.plans = {{.plan = *ParsePlan("euler:64"), .nfe = 64},
                        {.plan = *ParsePlan("dopri5:1e-3"), .nfe = 20},
                        {.plan = *ParsePlan("dopri5:1e-6"), .nfe = 50}};
  EXPECT_EQ(Predict(), 50 * Field());
  calibration_.plans.push_back({.plan = *ParsePlan("dopri5:1e-5"), .nfe = 38});
  EXPECT_EQ(Predict(), 38 * Field());
  spec_.span = {0.0, 3.0};
  EXPECT_EQ(Predict(), 3 * 38 * Field());
  spec_.max_steps = 2;
  EXPECT_EQ(Predict(), 12 * Field());
}

TEST_F(PredictTest, BoundsARequestAndItsBatches) {
  Work work;
  work.spec = spec_;
  work.spec.plan = FixedPlan{.method = {Method::kEuler}, .steps = 100};
  work.segment.rows = 7;
  CallLimits limits{.request_macs_max = 700 * Field(), .batch_macs_max = 21 * Field()};
  ASSERT_TRUE(BoundWork(calibration_, limits, work).ok());
  EXPECT_EQ(static_cast<double>(work.macs), 700 * Field());
  EXPECT_EQ(work.batch_rows_max, 16);
  work.spec.tier = Tier::kDouble;
  ASSERT_TRUE(BoundWork(calibration_, limits, work).ok());
  EXPECT_EQ(work.batch_rows_max, 4);
  limits.batch_macs_max = 1;
  ASSERT_TRUE(BoundWork(calibration_, limits, work).ok());
  EXPECT_EQ(work.batch_rows_max, 1);
  work.segment.rows = 8;
  const absl::Status refused = BoundWork(calibration_, limits, work);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("(8 rows, "));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("pending_macs_max"));
  work.bytes = limits.request_bytes_max + 1;
  EXPECT_THAT(std::string(BoundWork(calibration_, limits, work).message()),
              HasSubstr("268435457 bytes of inputs and outputs (8 rows, "));
}

}  // namespace
}  // namespace hyperserve
