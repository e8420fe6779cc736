#include "server/rpc/model_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/rpc/served_fixture.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;

TEST(FillModel, PlansOfTheModelAndOfWhatIsActive) {
  const auto served = ServedTinyClassifier();
  auto active = std::make_shared<Generation>(*served->corrections[0].active);
  active->calibration.plans = {
      {.plan = *ParsePlan("hyper_euler:2"), .error_mean = 0.01, .wins = false}};
  served->corrections[0].active = active;
  v1::GetModelReply reply;
  FillModel(*served, &reply);
  ASSERT_EQ(reply.plans_size(), 2);
  EXPECT_EQ(reply.plans(0).plan(), "euler:4");
  EXPECT_TRUE(reply.plans(0).wins());
  EXPECT_EQ(reply.plans(1).plan(), "hyper_euler:2");
  EXPECT_EQ(reply.plans(1).error_mean(), 0.01);
  EXPECT_FALSE(reply.plans(1).wins());
  EXPECT_THAT(reply.labels(), ElementsAre("low", "middle", "high"));
}

TEST(FillSummary, WhatIsNotUsedSaysWhy) {
  const auto served = ServedTinyFlow();
  served->problem = "calibration.json is of another base";
  served->corrections.push_back({.method = {Method::kEuler}, .problem = "half a generation"});
  v1::ModelSummary summary;
  FillSummary(*served, &summary);
  EXPECT_EQ(summary.problem(), "calibration.json is of another base");
  ASSERT_EQ(summary.corrections_size(), 2);
  EXPECT_EQ(summary.corrections(0).generation(), 7);
  EXPECT_EQ(summary.corrections(0).previous_generation(), 5);
  EXPECT_EQ(summary.corrections(0).direction(), "noise_to_data");
  EXPECT_EQ(summary.corrections(1).generation(), 0);
  EXPECT_EQ(summary.corrections(1).problem(), "half a generation");
}

}  // namespace
}  // namespace hyperserve
