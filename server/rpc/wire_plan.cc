#include "server/rpc/wire_plan.h"

#include "core/base/status.h"

namespace hyperserve {
namespace {

absl::StatusOr<Tier> TierFromWire(v1::Tier tier) {
  switch (tier) {
    case v1::TIER_UNSPECIFIED:
    case v1::TIER_EXACT:
      return Tier::kExact;
    case v1::TIER_FAST:
      return Tier::kFast;
    case v1::TIER_DOUBLE:
      return Tier::kDouble;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("tier: ", static_cast<int>(tier),
                       " is unknown; this server knows TIER_EXACT, TIER_FAST and TIER_DOUBLE"));
  }
}

absl::StatusOr<Plan> StructuredPlan(const v1::Plan& wire) {
  Plan plan;
  HS_ASSIGN_OR_RETURN(plan.tier, TierFromWire(wire.tier()));
  switch (wire.choice_case()) {
    case v1::Plan::kFixed: {
      HS_ASSIGN_OR_RETURN(const MethodChoice method, ParseMethod(wire.fixed().method()));
      plan.choice = FixedPlan{.method = method,
                              .steps = wire.fixed().steps(),
                              .hypersolved = wire.fixed().hypersolved()};
      break;
    }
    case v1::Plan::kAdaptive: {
      HS_ASSIGN_OR_RETURN(const MethodChoice method, ParseMethod(wire.adaptive().method()));
      plan.choice = AdaptivePlan{
          .method = method, .rtol = wire.adaptive().rtol(), .atol = wire.adaptive().atol()};
      break;
    }
    case v1::Plan::kAutomatic: {
      AutoPlan automatic;
      if (wire.automatic().target_error() != 0) {
        automatic.target_error = wire.automatic().target_error();
      }
      if (wire.automatic().time_budget_seconds() != 0) {
        automatic.time_budget_seconds = wire.automatic().time_budget_seconds();
      }
      plan.choice = automatic;
      break;
    }
    default:
      plan.choice = DefaultPlan{};
  }
  HS_RETURN_IF_ERROR(ValidatePlan(plan));
  return plan;
}

}  // namespace

absl::StatusOr<Plan> PlanFromWire(const v1::Plan& wire) {
  if (wire.choice_case() != v1::Plan::kText) {
    absl::StatusOr<Plan> plan = StructuredPlan(wire);
    if (plan.ok()) return plan;
    return Annotate(plan.status(), "plan");
  }
  if (wire.tier() == v1::TIER_UNSPECIFIED) return ParsePlan(wire.text());  // names the plan itself
  return absl::InvalidArgumentError(
      absl::StrCat("plan: tier stands beside text '", wire.text(),
                   "', which spells its own; write it there, as in 'euler:4/double'"));
}

}  // namespace hyperserve
