#include "core/plan/plan.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_join.h"
#include "core/base/shortest_text.h"
#include "core/base/status.h"
#include "core/plan/plan_number.h"

namespace hyperserve {
namespace {

constexpr std::array<std::string_view, 3> kTierNames = {"exact", "fast", "double"};
constexpr std::string_view kHyper = "hyper_";
constexpr std::string_view kMilliseconds = "ms";
constexpr std::string_view kPerRow = ",per_row";
constexpr int kSecondsToMilliseconds = 3;  // powers of ten
constexpr const char* kGrammar =
    "plans read [hyper_]NAME[(alpha)]:ARG[@GRID][/tier], as in euler:4, hyper_heun:1/fast, "
    "dopri5:1e-5, euler:4@cosine, "
    "auto:1e-2,2ms, default";

template <class... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

std::string KnownNames(bool embedded_only) {
  std::vector<absl::string_view> names;
  for (const MethodName& entry : kMethodNames) {
    if (entry.embedded || !embedded_only) names.push_back(Absl(entry.name));
  }
  for (const MethodName& entry : kTableMethodNames) {
    if (!embedded_only) names.push_back(Absl(entry.name));
  }
  return absl::StrJoin(names, ", ");
}

// The slopes' difference is divided by 2 alpha, and their rounding errors with it.
constexpr double kAlphaMin = 0.01;
std::string AlphaRange() {
  return absl::StrCat("[", ShortestText(kAlphaMin), ", 1], as in alpha(0.75):3");
}

bool PositiveFinite(double value) { return std::isfinite(value) && value > 0.0; }

// A tolerance or a target. A text with neither '.' nor 'e' would be a number of steps.
absl::StatusOr<double> ParseTolerance(std::string_view text) {
  const std::optional<double> value = ParsePositive(text);
  if (!value || text.find_first_of(".eE") == text.npos) {
    return Invalid("'", Absl(text),
                   "' is not a tolerance: write a number above zero with an exponent, as in 1e-5");
  }
  return *value;
}

absl::Status ValidateMethod(const MethodChoice& choice) {
  const size_t index = static_cast<size_t>(choice.method);
  if (index >= kMethodNames.size() + kTableMethodNames.size()) {
    return Invalid("method number ", index, " is unknown; the methods are ", KnownNames(false));
  }
  if (choice.method == Method::kAlpha) {
    if (choice.alpha >= kAlphaMin && choice.alpha <= 1.0) return absl::OkStatus();
    return Invalid("alpha is ", ShortestText(choice.alpha), "; it must lie in ", AlphaRange());
  }
  if (choice.alpha == 0.0) return absl::OkStatus();
  return Invalid("method '", Absl(NameOf(choice.method).name),
                 "' takes no parameter; only alpha does");
}

absl::StatusOr<int> ParseSteps(std::string_view text) {
  int steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error != std::errc() || end != text.data() + text.size() || text.starts_with('-')) {
    return Invalid("'", Absl(text), "' is neither a number of steps up to 2147483647, as in 4, ",
                   "nor a tolerance with an exponent, as in 1e-5");
  }
  return steps;
}

absl::StatusOr<AutoPlan> ParseAuto(std::string_view text) {
  AutoPlan plan;
  plan.per_row = text.ends_with(kPerRow);
  if (plan.per_row) text.remove_suffix(kPerRow.size());
  std::string_view budget = text;
  if (!text.ends_with(kMilliseconds) || text.find(',') != text.npos) {
    const size_t comma = text.find(',');
    HS_ASSIGN_OR_RETURN(plan.target_error, ParseTolerance(text.substr(0, comma)));
    if (comma == text.npos) return plan;
    budget = text.substr(comma + 1);
  }
  if (budget.ends_with(kMilliseconds)) {
    plan.time_budget_seconds = ParsePositive(budget.substr(0, budget.size() - kMilliseconds.size()),
                                             -kSecondsToMilliseconds);
  }
  if (!plan.time_budget_seconds) {
    return Invalid("'", Absl(budget), "' is not a time budget: write milliseconds, as in 2ms");
  }
  return plan;
}

absl::StatusOr<decltype(Plan::choice)> ParseChoice(std::string_view text) {
  if (text == "default") return DefaultPlan{};
  const size_t colon = text.find(':');
  if (colon == text.npos) return Invalid("there is no ':'; ", kGrammar);
  std::string_view name = text.substr(0, colon);
  std::string_view arg = text.substr(colon + 1);
  if (name == "auto") return ParseAuto(arg);
  StepGrid grid;
  const size_t at = arg.find('@');
  if (at != arg.npos) {
    HS_ASSIGN_OR_RETURN(grid, ParseStepGrid(arg.substr(at + 1)));
    arg = arg.substr(0, at);
  }
  const bool prefixed = name.starts_with(kHyper);
  if (prefixed) name.remove_prefix(kHyper.size());
  HS_ASSIGN_OR_RETURN(const MethodChoice method, ParseMethod(name));
  const bool learned = method.method == Method::kLearned;
  if (learned && prefixed) return Invalid("a learned solver takes no 'hyper_', as in learned:4");
  const bool hypersolved = prefixed || learned;
  if (arg.find_first_of(".eE,") == arg.npos) {
    HS_ASSIGN_OR_RETURN(const int steps, ParseSteps(arg));
    return FixedPlan{
        .method = method, .steps = steps, .hypersolved = hypersolved, .grid = std::move(grid)};
  }
  if (hypersolved) {
    return Invalid("'", Absl(arg), "' is a tolerance, and a hypersolved plan takes a number of ",
                   learned ? "evaluations, as in learned:4" : "steps, as in hyper_euler:2");
  }
  if (at != text.npos) {
    return Invalid("'", Absl(arg), "' is a tolerance, and a grid stands behind a number of steps, ",
                   "as in euler:4@cosine");
  }
  const size_t comma = arg.find(',');
  AdaptivePlan plan{.method = method};
  HS_ASSIGN_OR_RETURN(plan.rtol, ParseTolerance(arg.substr(0, comma)));
  plan.atol = plan.rtol;
  if (comma != arg.npos) {
    HS_ASSIGN_OR_RETURN(plan.atol, ParseTolerance(arg.substr(comma + 1)));
  }
  return plan;
}

absl::StatusOr<Plan> ParseWhole(std::string_view text) {
  Plan plan;
  const size_t slash = text.find('/');
  if (slash != text.npos) {
    const std::optional<Tier> tier = TierFromName(text.substr(slash + 1));
    if (!tier) {
      return Invalid("unknown tier '", Absl(text.substr(slash + 1)),
                     "'; the tiers are exact, fast, double");
    }
    plan.tier = *tier;
  }
  HS_ASSIGN_OR_RETURN(plan.choice, ParseChoice(text.substr(0, slash)));
  HS_RETURN_IF_ERROR(ValidatePlan(plan));
  return plan;
}

absl::Status Validate(const DefaultPlan&) { return absl::OkStatus(); }

absl::Status Validate(const FixedPlan& plan) {
  HS_RETURN_IF_ERROR(ValidateMethod(plan.method));
  if (!plan.grid.uniform() && RunsFromTable(plan.method.method)) {
    return Invalid("method '", Absl(NameOf(plan.method.method).name),
                   "' takes no grid, since its whole solve is one table; one-step methods do, as ",
                   "in euler:4@cosine");
  }
  if (plan.method.method == Method::kLearned) {
    if (!plan.hypersolved) return Invalid("a learned solver is hypersolved, as in learned:4");
    if (plan.steps >= 0 && plan.steps <= kTableEvaluationsMax) return absl::OkStatus();
    return Invalid("the number of evaluations is ", plan.steps, "; it must lie in [0, ",
                   kTableEvaluationsMax, "]");
  }
  if (plan.method.method == Method::kAb2 && plan.hypersolved) {
    return Invalid("method 'ab2' takes no correction, as in ab2:4");
  }
  if (plan.method.method == Method::kAb2 && plan.steps >= kTableEvaluationsMax) {
    return Invalid("the number of steps is ", plan.steps, "; ab2 takes at most ",
                   kTableEvaluationsMax - 1, ", since its whole solve is one table");
  }
  if (plan.steps >= 1) return ValidateStepGrid(plan.grid, plan.steps);
  return Invalid("the number of steps is ", plan.steps, "; it must be at least 1");
}

absl::Status Validate(const AdaptivePlan& plan) {
  HS_RETURN_IF_ERROR(ValidateMethod(plan.method));
  const MethodName& name = NameOf(plan.method.method);
  if (!name.embedded) {
    return Invalid("method '", Absl(name.name), "' cannot control its error, so it takes a number ",
                   "of steps, as in ", Absl(name.name),
                   ":4; the methods that take a tolerance are ", KnownNames(true));
  }
  for (const double tolerance : {plan.rtol, plan.atol}) {
    if (!PositiveFinite(tolerance)) {
      return Invalid("a tolerance is ", ShortestText(tolerance),
                     "; it must be finite and above zero");
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const AutoPlan& plan) {
  if (!plan.target_error && !plan.time_budget_seconds) {
    return Invalid(
        "an automatic plan needs a target error, a time budget or both, as in auto:1e-2,2ms");
  }
  if (!PositiveFinite(plan.target_error.value_or(1.0))) {
    return Invalid("the target error is ", ShortestText(*plan.target_error),
                   "; it must be finite and above zero");
  }
  if (plan.per_row && (!plan.target_error || plan.time_budget_seconds)) {
    return Invalid("an automatic plan per row takes a target error and no time budget, as in ",
                   "auto:1e-2,per_row");
  }
  if (!PositiveFinite(plan.time_budget_seconds.value_or(1.0))) {
    return Invalid("the time budget is ", ShortestText(*plan.time_budget_seconds),
                   " s; it must be finite and above zero");
  }
  return absl::OkStatus();
}

std::string Print(const DefaultPlan&) { return "default"; }

std::string Print(const FixedPlan& plan) {
  const bool prefixed = plan.hypersolved && plan.method.method != Method::kLearned;
  return absl::StrCat(prefixed ? Absl(kHyper) : "", PrintMethod(plan.method), ":", plan.steps,
                      plan.grid.uniform() ? "" : "@" + PrintStepGrid(plan.grid));
}

std::string Print(const AdaptivePlan& plan) {
  std::string text = absl::StrCat(PrintMethod(plan.method), ":", PrintScientific(plan.rtol));
  if (plan.atol != plan.rtol) absl::StrAppend(&text, ",", PrintScientific(plan.atol));
  return text;
}

std::string Print(const AutoPlan& plan) {
  std::vector<std::string> parts;
  if (plan.target_error) parts.push_back(PrintScientific(*plan.target_error));
  if (plan.time_budget_seconds) {
    parts.push_back(absl::StrCat(PrintDecimal(*plan.time_budget_seconds, kSecondsToMilliseconds),
                                 Absl(kMilliseconds)));
  }
  return absl::StrCat("auto:", absl::StrJoin(parts, ","), plan.per_row ? Absl(kPerRow) : "");
}

}  // namespace

std::string_view TierName(Tier tier) { return kTierNames[static_cast<size_t>(tier)]; }

std::optional<Tier> TierFromName(std::string_view name) {
  for (size_t i = 0; i < kTierNames.size(); ++i) {
    if (kTierNames[i] == name) return static_cast<Tier>(i);
  }
  return std::nullopt;
}

absl::StatusOr<MethodChoice> ParseMethod(std::string_view text) {
  MethodChoice choice;
  const size_t open = text.find('(');
  const std::string_view name = text.substr(0, open);
  const std::optional<Method> method = MethodFromName(name);
  if (!method) {
    return Invalid("unknown method '", Absl(name), "'; the methods are ", KnownNames(false));
  }
  choice.method = *method;
  if (open == text.npos) {
    if (*method != Method::kAlpha) return choice;
    return Invalid("method alpha needs its parameter in ", AlphaRange());
  }
  if (*method != Method::kAlpha) {
    return Invalid("method '", Absl(name), "' takes no parameter; only alpha does");
  }
  const std::string_view parameter = text.substr(open + 1);
  const std::optional<double> alpha = parameter.ends_with(')')
                                          ? ParsePositive(parameter.substr(0, parameter.size() - 1))
                                          : std::nullopt;
  if (!alpha) {
    return Invalid("'", Absl(text.substr(open)),
                   "' is not a parameter of alpha: write a number in ", AlphaRange());
  }
  choice.alpha = *alpha;
  HS_RETURN_IF_ERROR(ValidateMethod(choice));
  return choice;
}

std::string PrintMethod(const MethodChoice& choice) {
  std::string text(NameOf(choice.method).name);
  if (choice.method == Method::kAlpha) absl::StrAppend(&text, "(", PrintDecimal(choice.alpha), ")");
  return text;
}

absl::StatusOr<Plan> ParsePlan(std::string_view text) {
  absl::StatusOr<Plan> plan = ParseWhole(text);
  if (plan.ok()) return plan;
  return Annotate(plan.status(), absl::StrCat("plan '", Absl(text), "'"));
}

std::string PrintPlan(const Plan& plan) {
  std::string text = std::visit([](const auto& choice) { return Print(choice); }, plan.choice);
  if (plan.tier != Tier::kExact) absl::StrAppend(&text, "/", Absl(TierName(plan.tier)));
  return text;
}

StepPlan StepPlanOf(const Plan& plan) {
  if (const FixedPlan* fixed = plan.fixed()) return *fixed;
  return *plan.adaptive();
}

absl::Status ValidatePlan(const Plan& plan) {
  if (static_cast<size_t>(plan.tier) >= kTierNames.size()) {
    return Invalid("tier number ", static_cast<int>(plan.tier),
                   " is unknown; the tiers are exact, fast, double");
  }
  return std::visit([](const auto& choice) { return Validate(choice); }, plan.choice);
}

}  // namespace hyperserve
