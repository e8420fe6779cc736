// A plan is the part of a request that says how to solve: method, steps or tolerances, correction,
// tier. This header defines it as a value and defines its spelling:
//
//   [hyper_]NAME[(alpha)]:ARG[@GRID][/tier]
//                                       euler:4  hyper_euler:2  alpha(0.75):3  hyper_heun:1/fast
//                                       dopri5:1e-5  dopri5:1e-5,1e-8/double  ab2:4
//                                       euler:4@cosine  euler:3@[0,0.1,0.3,1] (step_grid.h)
//   learned:N[/tier]                    N evaluations of f: learned:4; 0 is the net g alone
//   auto:[TARGET][,][BUDGETms][/tier]   auto:1e-2  auto:2ms  auto:1e-2,2ms
//   auto:TARGET,per_row[/tier]          auto:1e-2,per_row
//   default[/tier]
//
// An ARG without '.', 'e' and ',' is a number of steps; any other is a tolerance (rtol = atol) or
// "rtol,atol". ParsePlan and PrintPlan are inverses, so the text of a plan can be a key. Numbers
// print as the shortest text that reads back the same, tolerances always with an exponent (1e0,
// 5e-4). All functions are pure and may be called from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "core/plan/method.h"
#include "core/plan/step_grid.h"

namespace hyperserve {

// The arithmetic of a solve. kExact: float32. kFast: fp16 operands, fp32 accumulation. kDouble:
// float64.
enum class Tier { kExact, kFast, kDouble };
std::string_view TierName(Tier tier);                     // "exact", "fast", "double"
std::optional<Tier> TierFromName(std::string_view name);  // nullopt: no such tier

// K steps, equal unless the grid says otherwise, with the correction g added to each where
// `hypersolved`. At least one step; the server checks its own upper limit. ab2 takes no correction,
// and neither ab2 nor a learned solver takes a grid. Of a learned solver `steps` is the
// number of evaluations of f, which may be 0, and `hypersolved` is always true.
struct FixedPlan {
  MethodChoice method;
  int steps = 1;
  bool hypersolved = false;
  StepGrid grid = {};
  bool operator==(const FixedPlan&) const = default;
};

// Error-controlled steps; the method must have an embedded pair. Both tolerances finite and > 0.
struct AdaptivePlan {
  MethodChoice method;
  double rtol = 1e-5;
  double atol = 1e-5;
  bool operator==(const AdaptivePlan&) const = default;
};

// The plans that a solver can run. The server resolves every other kind to one of these.
using StepPlan = std::variant<FixedPlan, AdaptivePlan>;

// The server chooses the cheapest plan with a measured error of at most `target_error` within the
// time budget. At least one of the two is set.
struct AutoPlan {
  std::optional<double> target_error;         // relative error of z(s1), as in calibration.json
  std::optional<double> time_budget_seconds;  // spelled in milliseconds
  // Each row ends with the first plan, by ascending cost, whose bound of its error is at most the
  // target. Takes a target and no time budget.
  bool per_row = false;
  bool operator==(const AutoPlan&) const = default;
};

// The default plan of the model (calibration.json); dopri5:1e-5 where it names none.
struct DefaultPlan {
  bool operator==(const DefaultPlan&) const = default;
};

// What a request asks for. Copies are cheap but for a listed grid; nothing in it refers to a model.
struct Plan {
  std::variant<DefaultPlan, FixedPlan, AdaptivePlan, AutoPlan> choice;
  Tier tier = Tier::kExact;
  bool operator==(const Plan&) const = default;

  // Null where the plan is of another kind. The pointers belong to this object.
  const FixedPlan* fixed() const { return std::get_if<FixedPlan>(&choice); }
  const AdaptivePlan* adaptive() const { return std::get_if<AdaptivePlan>(&choice); }
  bool hypersolved() const { return fixed() != nullptr && fixed()->hypersolved; }
};

// Precondition: the plan is fixed or adaptive.
StepPlan StepPlanOf(const Plan& plan);

// kInvalidArgument quotes the text, says what is wrong in it and shows a correct spelling; for an
// unknown method it lists the known ones. A plan that is returned passes ValidatePlan.
absl::StatusOr<Plan> ParsePlan(std::string_view text);

// The one canonical spelling, without `/exact`. Precondition: ValidatePlan(plan).ok().
std::string PrintPlan(const Plan& plan);

// A method alone, as plans and the folders of a repository spell it: "heun", "alpha(0.75)". The two
// are inverses. ParseMethod fails as ParsePlan does.
absl::StatusOr<MethodChoice> ParseMethod(std::string_view text);
// Precondition: alpha is a positive number where the method is kAlpha.
std::string PrintMethod(const MethodChoice& method);

// Checks a plan that was built by hand; the parser accepts exactly the plans that pass.
// kInvalidArgument for steps < 1 (of a learned solver outside 0 to kTableEvaluationsMax, of ab2
// from kTableEvaluationsMax on), a grid on a method that runs from a table or of other than K
// steps, a learned solver that is not hypersolved, tolerances that are not finite or <= 0, a
// tolerance on a method without an embedded pair, alpha outside [0.01, 1], a correction on ab2, and
// an automatic plan with neither a target nor a budget, or per row and without a target or with a
// budget. Limits that depend on a server are not checked here.
absl::Status ValidatePlan(const Plan& plan);

}  // namespace hyperserve
