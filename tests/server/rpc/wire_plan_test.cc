#include "server/rpc/wire_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hyperserve {
namespace {

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
                "plan 'alpha(1.0000001):3': alpha is 1.0000001; it must lie in (0, 1]"},
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

}  // namespace
}  // namespace hyperserve
