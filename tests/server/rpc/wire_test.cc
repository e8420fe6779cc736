#include "server/rpc/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/tensor.h"
#include "core/plan/condition_knots.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "server/calls/ask.h"
#include "server/calls/flow.h"
#include "server/calls/info.h"
#include "server/calls/rows.h"
#include "server/registry/served_model.h"
#include "tests/server/calls/served_fixture.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

absl::StatusOr<Plan> FromText(const std::string& text) {
  v1::Plan wire;
  wire.set_text(text);
  return PlanFromWire(wire);
}

TEST(PlanFromWire, NothingIsTheDefault) {
  EXPECT_EQ(*PlanFromWire({}), Plan{});
  v1::Plan wire;
  wire.mutable_default_();
  wire.set_tier(v1::TIER_DOUBLE);
  EXPECT_EQ(*PlanFromWire(wire), (Plan{.choice = DefaultPlan{}, .tier = Tier::kDouble}));
}

TEST(PlanFromWire, StructuredAndSpelledAreTheSame) {
  v1::Plan fixed;
  fixed.mutable_fixed()->set_method("euler");
  fixed.mutable_fixed()->set_steps(2);
  fixed.mutable_fixed()->set_hypersolved(true);
  EXPECT_EQ(*PlanFromWire(fixed), *FromText("hyper_euler:2"));

  v1::Plan grid;
  grid.mutable_fixed()->set_method("euler");
  grid.mutable_fixed()->set_steps(4);
  grid.mutable_fixed()->set_grid("sway(-1)");
  EXPECT_EQ(*PlanFromWire(grid), *FromText("euler:4@sway(-1)"));

  v1::Plan family;
  family.mutable_fixed()->set_method("alpha(0.75)");
  family.mutable_fixed()->set_steps(3);
  EXPECT_EQ(*PlanFromWire(family), *FromText("alpha(0.75):3"));

  v1::Plan adaptive;
  adaptive.mutable_adaptive()->set_method("dopri5");
  adaptive.mutable_adaptive()->set_rtol(1e-5);
  adaptive.mutable_adaptive()->set_atol(1e-7);
  adaptive.set_tier(v1::TIER_DOUBLE);
  EXPECT_EQ(*PlanFromWire(adaptive), *FromText("dopri5:1e-5,1e-7/double"));

  v1::Plan automatic;
  automatic.mutable_automatic()->set_target_error(0.01);
  automatic.mutable_automatic()->set_time_budget_seconds(0.002);
  EXPECT_EQ(*PlanFromWire(automatic), *FromText("auto:1e-2,2ms"));
}

struct BadPlan {
  const char* name;
  std::function<void(v1::Plan&)> spoil;
  const char* words;
};

class BadPlans : public testing::TestWithParam<BadPlan> {};

TEST_P(BadPlans, AreInvalidInWords) {
  v1::Plan wire;
  GetParam().spoil(wire);
  const absl::Status status = PlanFromWire(wire).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(GetParam().words));
  EXPECT_THAT(message, StartsWith("plan"));
  EXPECT_THAT(message, Not(StartsWith("plan: plan"))) << "the field is named once";
}

INSTANTIATE_TEST_SUITE_P(
    All, BadPlans,
    testing::Values(
        BadPlan{"UnknownTier", [](v1::Plan& p) { p.set_tier(static_cast<v1::Tier>(17)); },
                "plan: tier: 17 is unknown; this server knows TIER_EXACT"},
        BadPlan{"TierBesideText",
                [](v1::Plan& p) {
                  p.set_text("euler:4");
                  p.set_tier(v1::TIER_EXACT);
                },
                "spells its own"},
        BadPlan{"AlphaJustAbove", [](v1::Plan& p) { p.set_text("alpha(1.0000001):3"); },
                "plan 'alpha(1.0000001):3': alpha is 1.0000001; it must lie in [0.01, 1]"},
        BadPlan{"UnknownMethod", [](v1::Plan& p) { p.set_text("oiler:4"); }, "oiler"},
        BadPlan{"UnknownMethodStructured",
                [](v1::Plan& p) {
                  p.mutable_fixed()->set_method("oiler");
                  p.mutable_fixed()->set_steps(1);
                },
                "oiler"},
        BadPlan{"NoSteps", [](v1::Plan& p) { p.mutable_fixed()->set_method("euler"); }, "0"},
        BadPlan{"ToleranceWithoutPair", [](v1::Plan& p) { p.set_text("rk4:1e-5"); }, "rk4"},
        BadPlan{"NegativeTolerance",
                [](v1::Plan& p) {
                  p.mutable_adaptive()->set_method("dopri5");
                  p.mutable_adaptive()->set_rtol(-1);
                  p.mutable_adaptive()->set_atol(1);
                },
                "-1"},
        BadPlan{"EmptyText", [](v1::Plan& p) { p.set_text(""); }, "plan"}),
    [](const auto& info) { return info.param.name; });

TEST(TermsFromWire, CarryWhatIsAsked) {
  v1::SolveOptions options;
  options.set_model("m");
  options.mutable_plan()->set_text("euler:4");
  options.set_max_steps(5);
  options.set_generation(6);
  options.set_request_id("id-1");
  options.set_max_reply_bytes(7);
  const AskTerms terms = TermsFromWire(options);
  EXPECT_EQ(terms.model, "m");
  EXPECT_EQ(*terms.plan, *ParsePlan("euler:4"));
  EXPECT_EQ(terms.max_steps, 5);
  EXPECT_EQ(terms.generation, 6);
  EXPECT_EQ(terms.request_id, "id-1");
  EXPECT_EQ(terms.max_reply_bytes, 7);
  options.mutable_plan()->set_text("oiler:4");
  EXPECT_EQ(TermsFromWire(options).plan.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TermsFromWire, KnotsNameTheirInterpolation) {
  v1::SolveOptions options;
  EXPECT_FALSE(TermsFromWire(options).knots.has_value());
  options.mutable_condition_knots()->add_depths(0.5);
  EXPECT_EQ((*TermsFromWire(options).knots)->interpolation, Interpolation::kLinear);
  EXPECT_EQ((*TermsFromWire(options).knots)->depths, std::vector<double>({0.5}));
  options.mutable_condition_knots()->set_interpolation("cubic_hermite");
  EXPECT_EQ((*TermsFromWire(options).knots)->interpolation, Interpolation::kCubicHermite);
  options.mutable_condition_knots()->set_interpolation("square");
  EXPECT_EQ(TermsFromWire(options).knots->status().message(),
            "condition_knots.interpolation: 'square' is none of linear, cubic_hermite");
}

TEST(TermsFromWire, ConditionAndGuidanceAreThereWhereTheyWereSent) {
  v1::SolveOptions options;
  EXPECT_FALSE(TermsFromWire(options).guidance.has_value());
  options.mutable_guidance()->set_dtype(v1::DTYPE_F64);
  options.mutable_guidance()->add_shape(2);
  EXPECT_EQ(TermsFromWire(options).guidance->value().shape, Shape({2}));
  EXPECT_FALSE(TermsFromWire(options).condition.has_value());
  options.mutable_condition();
  EXPECT_FALSE(TermsFromWire(options).condition->ok());  // without a dtype
  options.mutable_condition()->set_dtype(v1::DTYPE_F32);
  options.mutable_condition()->add_shape(1);
  EXPECT_EQ(TermsFromWire(options).condition->value().shape, Shape({1}));
}

TEST(RowsFromWire, BorrowsEveryDtype) {
  v1::Tensor wire;
  wire.add_shape(2);
  wire.add_shape(1);
  wire.set_data("abcdefghijklmnop");
  const std::pair<v1::Dtype, Dtype> pairs[] = {{v1::DTYPE_F32, Dtype::kF32},
                                               {v1::DTYPE_F64, Dtype::kF64},
                                               {v1::DTYPE_F16, Dtype::kF16},
                                               {v1::DTYPE_U8, Dtype::kU8},
                                               {v1::DTYPE_I64, Dtype::kI64}};
  for (const auto& [theirs, ours] : pairs) {
    wire.set_dtype(theirs);
    const AskedRows rows = RowsFromWire(wire);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(rows->dtype, ours);
    EXPECT_EQ(rows->shape, (Shape{2, 1}));
    EXPECT_EQ(static_cast<const void*>(rows->bytes.data()), wire.data().data());
    EXPECT_EQ(rows->bytes.size(), 16u);
  }
}

TEST(RowsFromWire, UnknownDtypesAreRefusedInTheEnd) {
  v1::Tensor wire;
  const RowsRule rule{.field = "inputs", .row_shape = {2}, .rows_max = 4};
  EXPECT_THAT(std::string(TakeRows(RowsFromWire(wire), rule).status().message()),
              StartsWith("inputs: dtype is not specified; send F32"));
  wire.set_dtype(static_cast<v1::Dtype>(99));
  EXPECT_THAT(std::string(TakeRows(RowsFromWire(wire), rule).status().message()),
              StartsWith("inputs: dtype: 99 is unknown; send F32"));
}

TEST(TensorToWire, GivesBackWhatCame) {
  const std::vector<float> numbers = {1, 2, 3, 4};
  v1::Tensor wire, again;
  wire.set_dtype(v1::DTYPE_F32);
  wire.add_shape(2);
  wire.add_shape(2);
  wire.set_data(numbers.data(), 16);
  ToWire(*TakeRows(RowsFromWire(wire), {.field = "inputs", .row_shape = {2}, .rows_max = 4}),
         &again);
  EXPECT_EQ(again.SerializeAsString(), wire.SerializeAsString());
}

const SolveInfo kInfo{.request_id = "id-1",
                      .model = "m",
                      .plan = "hyper_euler:2",
                      .tier = Tier::kDouble,
                      .generation = 4,
                      .base_digest = "d",
                      .nfe = {2},
                      .correction_evaluations = {1},
                      .macs = {100, 101},
                      .row_status = {RowStatus::kConverged, RowStatus::kNonFinite},
                      .queue_seconds = 0.25,
                      .solve_seconds = 0.5,
                      .engine = "e",
                      .engine_reason = "there is no other",
                      .device = "cpu",
                      .calibrated_error = 0.125,
                      .plan_reason = "it is the cheapest",
                      .bucket = 32};

TEST(InfoToWire, SaysAllOfIt) {
  v1::SolveInfo wire;
  ToWire(kInfo, &wire);
  EXPECT_EQ(wire.request_id(), "id-1");
  EXPECT_EQ(wire.model(), "m");
  EXPECT_EQ(wire.plan(), "hyper_euler:2");
  EXPECT_EQ(wire.tier(), "double");
  EXPECT_EQ(wire.generation(), 4);
  EXPECT_EQ(wire.base_digest(), "d");
  EXPECT_THAT(wire.nfe(), ElementsAre(2));
  EXPECT_THAT(wire.correction_evaluations(), ElementsAre(1));
  EXPECT_THAT(wire.macs(), ElementsAre(100, 101));
  EXPECT_THAT(wire.row_status(), ElementsAre(v1::ROW_STATUS_CONVERGED, v1::ROW_STATUS_NON_FINITE));
  EXPECT_EQ(wire.queue_seconds(), 0.25);
  EXPECT_EQ(wire.solve_seconds(), 0.5);
  EXPECT_EQ(wire.engine(), "e");
  EXPECT_EQ(wire.engine_reason(), "there is no other");
  EXPECT_EQ(wire.device(), "cpu");
  EXPECT_EQ(wire.bucket(), 32);
  EXPECT_EQ(wire.calibrated_error(), 0.125);
  EXPECT_EQ(wire.plan_reason(), "it is the cheapest");
}

TEST(ChunkToWire, CarriesItsRowsAndTheGeneration) {
  const SampleAnswer answer{
      .info = kInfo, .samples = HostTensor::Zeros(Dtype::kF32, {2, 3}), .log_density = {}};
  v1::SampleChunk chunk;
  ToWire(answer, 1000, &chunk);
  EXPECT_EQ(chunk.first_row(), 1000u);
  EXPECT_EQ(chunk.rows(), 2);
  EXPECT_EQ(chunk.generation(), 4);
  EXPECT_THAT(chunk.nfe(), ElementsAre(2));
  EXPECT_THAT(chunk.macs(), ElementsAre(100, 101));
  EXPECT_THAT(chunk.row_status(), ElementsAre(v1::ROW_STATUS_CONVERGED, v1::ROW_STATUS_NON_FINITE));
  EXPECT_EQ(chunk.samples().data().size(), 24u);
  EXPECT_FALSE(chunk.has_summary() || chunk.has_log_density());
}

TEST(ModelToWire, PlansOfTheModelAndOfWhatIsActive) {
  const auto served = ServedTinyClassifier();
  auto active = std::make_shared<Generation>(*served->corrections[0].active);
  active->calibration.plans = {
      {.plan = *ParsePlan("hyper_euler:2"), .error_mean = 0.01, .wins = false}};
  served->corrections[0].active = active;
  v1::GetModelReply reply;
  ToWire(*served, &reply);
  ASSERT_EQ(reply.plans_size(), 2);
  EXPECT_EQ(reply.plans(0).plan(), "euler:4");
  EXPECT_TRUE(reply.plans(0).wins());
  EXPECT_EQ(reply.plans(1).plan(), "hyper_euler:2");
  EXPECT_EQ(reply.plans(1).error_mean(), 0.01);
  EXPECT_FALSE(reply.plans(1).wins());
  EXPECT_THAT(reply.labels(), ElementsAre("low", "middle", "high"));
}

TEST(ModelToWire, TheDepthsOfATrajectory) {
  v1::GetModelReply of_trajectory, of_flow;
  ToWire(*ServedTinyTrajectory(), &of_trajectory);
  ToWire(*ServedTinyFlow(), &of_flow);
  EXPECT_THAT(of_trajectory.save_at(), ElementsAre(0.25, 1));
  EXPECT_EQ(of_flow.save_at_size(), 0);
}

TEST(ModelToWire, WhatIsNotUsedSaysWhy) {
  const auto served = ServedTinyFlow();
  served->problem = "calibration.json is of another base";
  served->corrections.push_back({.method = {Method::kEuler}, .problem = "half a generation"});
  served->calibration.default_plan = *ParsePlan("hyper_euler:2");
  v1::ModelSummary summary;
  ToWire(*served, &summary);
  EXPECT_EQ(summary.problem(), "calibration.json is of another base");
  ASSERT_EQ(summary.corrections_size(), 2);
  EXPECT_EQ(summary.corrections(0).generation(), 7);
  EXPECT_EQ(summary.corrections(0).previous_generation(), 5);
  EXPECT_EQ(summary.corrections(0).direction(), "noise_to_data");
  EXPECT_EQ(summary.corrections(1).generation(), 0);
  EXPECT_EQ(summary.corrections(1).problem(), "half a generation");
  EXPECT_EQ(summary.default_plan(), "hyper_euler:2");
  EXPECT_THAT(summary.default_plan_problem(),
              HasSubstr("is replaced by 'euler:4': half a generation"));
}

}  // namespace
}  // namespace hyperserve
