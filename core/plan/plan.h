// A plan: what one request asks of a solver, as a value; its one spelling, parser and printer.
//
//   [hyper_]NAME[(alpha)]:ARG[/tier]      euler:4  hyper_euler:2  alpha(0.75):3  hyper_heun:1/fast
//   dopri5:1e-5 auto:TARGET[,BUDGETms]                auto:1e-2,2ms    default
//
// An ARG without '.' or 'e' is a number of steps, else rtol (= atol) or "rtol,atol". ParsePlan and
// PrintPlan are inverses: numbers print as the shortest text that reads back the same, tolerances
// always with an exponent (1e0, 5e-4).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "core/plan/method.h"

namespace hyperserve {

// Arithmetic of a solve. kExact: float32. kFast: fp16 operands with fp32 accumulation. kDouble:
// float64.
enum class Tier { kExact, kFast, kDouble };
std::string_view TierName(Tier tier);  // "exact", "fast", "double"
std::optional<Tier> TierFromName(std::string_view name);

// K equal steps, with the correction g added where `hypersolved`. Steps >= 1; the server's limit is
// checked by the server.
struct FixedPlan {
  MethodChoice method;
  int steps = 1;
  bool hypersolved = false;
  bool operator==(const FixedPlan&) const = default;
};

// Error-controlled steps; the method must have an embedded pair. Both tolerances finite and > 0.
struct AdaptivePlan {
  MethodChoice method;
  double rtol = 1e-5;
  double atol = 1e-5;
  bool operator==(const AdaptivePlan&) const = default;
};

// What a solver can be given: every other kind of plan is resolved to one of these.
using StepPlan = std::variant<FixedPlan, AdaptivePlan>;

// The server chooses: the cheapest plan whose measured error is at most `target_error`, within the
// time budget. At least one is set.
struct AutoPlan {
  std::optional<double> target_error;         // relative error of z(s1), as calibrated
  std::optional<double> time_budget_seconds;  // printed in ms
  bool operator==(const AutoPlan&) const = default;
};

// The model's own default plan (calibration.json), dopri5:1e-5 where it names none.
struct DefaultPlan {
  bool operator==(const DefaultPlan&) const = default;
};

struct Plan {
  std::variant<DefaultPlan, FixedPlan, AdaptivePlan, AutoPlan> choice;
  Tier tier = Tier::kExact;
  bool operator==(const Plan&) const = default;

  const FixedPlan* fixed() const { return std::get_if<FixedPlan>(&choice); }
  const AdaptivePlan* adaptive() const { return std::get_if<AdaptivePlan>(&choice); }
  bool hypersolved() const { return fixed() != nullptr && fixed()->hypersolved; }
};

// kInvalidArgument names the text, what is wrong in it and the spelling that would be right
// (unknown method: the known ones).
absl::StatusOr<Plan> ParsePlan(std::string_view text);

// The canonical spelling; `/exact` is not printed. Precondition: ValidatePlan(plan).ok().
std::string PrintPlan(const Plan& plan);

// A method alone, as it is spelled in a plan and names its folder in a repository: "heun",
// "alpha(0.75)". Inverses; errors as ParsePlan's.
absl::StatusOr<MethodChoice> ParseMethod(std::string_view text);
std::string PrintMethod(const MethodChoice& method);

// What the parser would refuse in a plan built by hand: steps < 1, tolerances not finite or <= 0, a
// tolerance on a method without an embedded pair, alpha outside (0, 1], an automatic plan without a
// target.
absl::Status ValidatePlan(const Plan& plan);

}  // namespace hyperserve
