#include "training/measure/rivals.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/model/net/cost.h"
#include "core/plan/plan.h"
#include "programs/progress.h"
#include "programs/time_left.h"

namespace hyperserve {

absl::Status Rivals::Measure(const std::vector<Plan>& plans) {
  TimeLeft time_left;
  for (const Plan& plan : plans) time_left.Expect(1, measurer_.ErrorSeconds(plan, nullptr));
  Progress progress("rivals", static_cast<int64_t>(plans.size()), "plans",
                    [&] { return time_left.Seconds(); });
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto one = time_left.Timed(i, [&] { return measurer_.MeasureError(plans[i], nullptr); });
    if (!one.ok() && !absl::IsFailedPrecondition(one.status())) return one.status();
    measured_[PrintPlan(plans[i])] = one.ok() ? std::optional(*one) : std::nullopt;
    progress.Advance(1);
  }
  return absl::OkStatus();
}

std::map<std::string, Plan> Rivals::Plans(int64_t macs) const {
  const int64_t field = std::max<int64_t>(model_.field_macs(), 1);
  std::map<std::string, Plan> plans;
  // The plans of each number of evaluations are the largest ones within it.
  for (int64_t within = field; plans.empty() || within <= macs; within += field) {
    for (const FixedPlan& rival : ClassicalRivals(model_, within)) {
      const Plan plan{.choice = rival, .tier = Tier::kExact};
      plans.emplace(PrintPlan(plan), plan);
    }
  }
  return plans;
}

double Rivals::Seconds(int64_t macs) const {
  double seconds = 0;
  for (const auto& [name, plan] : Plans(macs)) {
    if (!measured_.contains(name)) seconds += measurer_.ErrorSeconds(plan, nullptr);
  }
  return seconds;
}

absl::StatusOr<std::vector<PlanCalibration>> Rivals::Within(int64_t macs) {
  const std::map<std::string, Plan> plans = Plans(macs);
  std::vector<Plan> missing;
  for (const auto& [name, plan] : plans) {
    if (!measured_.contains(name)) missing.push_back(plan);
  }
  HS_RETURN_IF_ERROR(Measure(missing));
  std::vector<PlanCalibration> all;
  for (const auto& [name, plan] : plans) {
    if (const auto& one = measured_.at(name)) all.push_back(*one);
  }
  return all;
}

absl::StatusOr<PlanCalibration> Rivals::BestWithin(int64_t macs) {
  HS_ASSIGN_OR_RETURN(const std::vector<PlanCalibration> all, Within(macs));
  if (all.empty()) return absl::FailedPreconditionError("no classical plan converges on all rows");
  return *std::min_element(all.begin(), all.end(),
                           [](const PlanCalibration& a, const PlanCalibration& b) {
                             return a.error_mean < b.error_mean;
                           });
}

absl::Status MarkAgainstRivals(Rivals& rivals, std::vector<PlanCalibration>& hypersolved) {
  double most = 0;
  for (const PlanCalibration& plan : hypersolved) most = std::max(most, plan.macs);
  HS_ASSIGN_OR_RETURN(const auto classical, rivals.Within(static_cast<int64_t>(most)));
  MarkWins(classical, hypersolved);
  return absl::OkStatus();
}

}  // namespace hyperserve
