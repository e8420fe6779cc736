#include "training/bounds/bounded_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hyperserve {

Ladder RungsOf(const std::vector<BoundedPlan>& plans, const BoundedPlan& alone, double macs_most) {
  const auto is_rung = [&](const BoundedPlan& plan) {
    return plan.learned() && &plan != &alone && plan.calibration.macs <= macs_most;
  };
  const auto many = static_cast<size_t>(std::count_if(plans.begin(), plans.end(), is_rung));
  const size_t most = std::min(many, kRungsMost);
  Ladder rungs;
  size_t rung = 0;
  for (const BoundedPlan& plan : plans) {
    bool kept = &plan == &alone;
    if (is_rung(plan)) {
      kept = (rung + 1) * most / many > rung * most / many;
      ++rung;
    }
    if (kept) rungs.push_back(&plan);
  }
  return rungs;
}

std::vector<double> MacsAdded(const Ladder& ladder, const Payment& payment) {
  std::vector<double> added;
  double evaluations = 0;
  for (const BoundedPlan* plan : ladder) {
    const bool with_distance = payment.distances && plan != ladder.back();
    const bool again = payment.reused && plan->learned();
    added.push_back((with_distance ? plan->macs : plan->calibration.macs) -
                    (again ? evaluations : 0));
    evaluations = plan->evaluation_macs;
  }
  return added;
}

double Quantile(std::vector<double> values, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

Outcome OutcomeOf(const Ladder& ladder, const std::vector<double>& thresholds,
                  const Payment& payment, size_t first) {
  const std::vector<double> added = MacsAdded(ladder, payment);
  std::vector<double> errors;
  double macs = 0;
  for (size_t row = first; row < ladder.front()->errors.size(); row += 2) {
    size_t i = 0;
    macs += added[0];
    while (i + 1 < ladder.size() && !(ladder[i]->bounds[row] <= thresholds[i])) macs += added[++i];
    errors.push_back(ladder[i]->errors[row]);
  }
  const auto rows = static_cast<double>(errors.size());
  return {.p99 = Quantile(std::move(errors), 0.99), .macs = macs / rows};
}

}  // namespace hyperserve
