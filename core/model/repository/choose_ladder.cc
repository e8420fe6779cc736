#include "core/model/repository/choose_ladder.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/error_bound.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

// The error that 99 % of the rows have at most; older files tell only the largest.
double TailOf(const PlanOption& option) {
  const PlanCalibration& plan = *option.measured;
  return plan.error_p99 > 0 ? plan.error_p99 : plan.error_max;
}

absl::StatusOr<PlanOption> LastRung(double target, const std::vector<PlanOption>& options) {
  const PlanOption* best = nullptr;
  const PlanOption* accurate = nullptr;
  for (const PlanOption& option : options) {
    if (option.measured->heavy_tail) continue;
    if (accurate == nullptr || TailOf(option) < TailOf(*accurate)) accurate = &option;
    if (TailOf(option) > target) continue;
    if (best == nullptr || option.measured->macs < best->measured->macs) best = &option;
  }
  if (best != nullptr) return *best;
  if (accurate == nullptr) {
    return absl::FailedPreconditionError(
        "no plan was measured for what is asked: name one, as in 'dopri5:1e-5'");
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "no measured plan has an error of at most %.3g in 99 %% of the rows; '%s' has %.3g", target,
      PrintPlan(accurate->measured->plan), TailOf(*accurate)));
}

struct Rung {
  PlanOption option;
  double share = 0;                           // of all rows, which this plan ends
  double macs_after = 0;                      // of the plans after this one, for each of all rows
  std::optional<size_t> next = std::nullopt;  // nullopt: the last plan

  double macs() const { return option.measured->macs; }
};

// The plans that may stand before the last, by ascending MACs.
std::vector<Rung> EarlierRungs(double target, double last_macs,
                               const std::vector<PlanOption>& options) {
  std::vector<Rung> rungs;
  for (const PlanOption& option : options) {
    const PlanCalibration& plan = *option.measured;
    if (!plan.bound || plan.macs >= last_macs) continue;
    rungs.push_back({.option = option, .share = ShareWithin(*plan.bound, target)});
  }
  std::stable_sort(rungs.begin(), rungs.end(),
                   [](const Rung& a, const Rung& b) { return a.macs() < b.macs(); });
  return rungs;
}

}  // namespace

absl::StatusOr<std::vector<PlanOption>> ChooseLadder(double target_error,
                                                     const std::vector<PlanOption>& options) {
  const absl::StatusOr<PlanOption> last = LastRung(target_error, options);
  if (!last.ok()) return last.status();
  const double last_macs = last->measured->macs;
  std::vector<Rung> rungs = EarlierRungs(target_error, last_macs, options);
  std::optional<size_t> first;
  double fewest = last_macs;
  for (size_t i = rungs.size(); i-- > 0;) {
    Rung& rung = rungs[i];
    const double left = 1 - rung.share;
    rung.macs_after = left * last_macs;
    for (size_t j = i + 1; j < rungs.size(); ++j) {
      const double macs = left * rungs[j].macs() + rungs[j].macs_after;
      if (rungs[j].share <= rung.share || macs >= rung.macs_after) continue;
      rung.macs_after = macs;
      rung.next = j;
    }
    if (rung.macs() + rung.macs_after >= fewest) continue;
    fewest = rung.macs() + rung.macs_after;
    first = i;
  }
  std::vector<PlanOption> ladder;
  for (std::optional<size_t> i = first; i; i = rungs[*i].next) ladder.push_back(rungs[*i].option);
  ladder.push_back(*last);
  return ladder;
}

}  // namespace hyperserve
