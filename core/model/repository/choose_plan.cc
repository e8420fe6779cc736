#include "core/model/repository/choose_plan.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hyperserve {
namespace {

constexpr double kEqualCost = 1.05;  // of MACs: less than what times tell apart

bool InTime(const PlanOption& option, const AutoPlan& wanted) {
  return !wanted.time_budget_seconds || option.seconds <= *wanted.time_budget_seconds;
}

bool Meets(const PlanOption& option, const AutoPlan& wanted) {
  return InTime(option, wanted) &&
         (!wanted.target_error || option.measured->error_mean <= *wanted.target_error);
}

using Rank = std::pair<double, double>;

Rank ByError(const PlanOption& option) { return {option.measured->error_mean, option.seconds}; }
Rank ByMacs(const PlanOption& option) {
  return {option.measured->macs, option.measured->error_mean};
}
Rank ByTime(const PlanOption& option) { return {option.seconds, option.measured->error_mean}; }

// The first option of least rank among those that pass; null: none passes.
template <class Pass>
const PlanOption* Best(const std::vector<PlanOption>& options, Rank (*rank)(const PlanOption&),
                       const Pass& pass) {
  const PlanOption* best = nullptr;
  for (const PlanOption& option : options) {
    if (option.measured->heavy_tail || !pass(option)) continue;
    if (best == nullptr || rank(option) < rank(*best)) best = &option;
  }
  return best;
}

std::string Described(const PlanOption& option) {
  return absl::StrFormat("'%s' (error %.3g, %.3g ms)", PrintPlan(option.measured->plan),
                         option.measured->error_mean, 1e3 * option.seconds);
}

absl::Status NothingMeets(const AutoPlan& wanted, const std::vector<PlanOption>& options) {
  const auto any = [](const PlanOption&) { return true; };
  const std::string refusal =
      absl::StrCat("no measured plan meets '", PrintPlan({.choice = wanted}), "'; ");
  const PlanOption* accurate = Best(options, ByError, any);
  if (accurate == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        refusal, "none was measured for what is asked: name one, as in 'dopri5:1e-5'"));
  }
  const PlanOption* in_time =
      Best(options, ByError, [&](const PlanOption& option) { return InTime(option, wanted); });
  return absl::FailedPreconditionError(
      absl::StrCat(refusal, "the most accurate is ", Described(*accurate),
                   in_time == nullptr    ? ", the fastest " + Described(*Best(options, ByTime, any))
                   : in_time != accurate ? ", within the time " + Described(*in_time)
                                         : std::string()));
}

}  // namespace

absl::StatusOr<PlanOption> ChoosePlan(const AutoPlan& wanted,
                                      const std::vector<PlanOption>& options) {
  const auto meets = [&](const PlanOption& option) { return Meets(option, wanted); };
  if (!wanted.target_error) {
    const PlanOption* best = Best(options, ByError, meets);
    return best == nullptr ? NothingMeets(wanted, options) : absl::StatusOr<PlanOption>(*best);
  }
  const PlanOption* cheapest = Best(options, ByMacs, meets);
  if (cheapest == nullptr) return NothingMeets(wanted, options);
  const double macs = kEqualCost * cheapest->measured->macs;
  return *Best(options, ByError, [&](const PlanOption& option) {
    return meets(option) && option.measured->macs <= macs;
  });
}

double SecondsOf(const PlanCalibration& plan, int64_t rows) {
  const auto count = static_cast<double>(rows);
  if (plan.times.empty()) return plan.seconds_per_row * count;
  const BatchTime* below = nullptr;
  for (const BatchTime& time : plan.times) {
    if (time.rows < rows) {
      below = &time;
      continue;
    }
    if (below == nullptr) return time.seconds;
    const double share = (count - below->rows) / (time.rows - below->rows);
    return below->seconds + share * (time.seconds - below->seconds);
  }
  return below->seconds * count / below->rows;
}

}  // namespace hyperserve
