#include "training/bounds/tune.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace hyperserve {
namespace {

// A ladder may hold plans that cost more than the one for all rows, if few rows come to them.
constexpr double kMacsMost = 1.7;
constexpr int kHalvings = 10;  // of the interval for the price of a miss

// Chooses thresholds on the even rows.
class Tuner {
 public:
  Tuner(const std::vector<BoundedPlan>& plans, double error, bool reused)
      : error_(error), payment_{.reused = reused, .distances = true} {
    for (const BoundedPlan& plan : plans) {
      if (!plan.learned()) continue;
      std::vector<size_t>& order = orders_[&plan];
      for (size_t row = 0; row < plan.errors.size(); row += 2) order.push_back(row);
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return plan.bounds[a] < plan.bounds[b]; });
    }
  }

  // A miss costs `price`, so the thresholds of the least expected cost follow from the last plan
  // back to the first: each ends the rows of small bounds for which ending is cheaper than going
  // on is.
  std::vector<double> Thresholds(const Ladder& ladder, double price) const {
    const std::vector<double> added = MacsAdded(ladder, payment_);
    const auto ended = [&](const BoundedPlan& plan, size_t row) {
      return plan.errors[row] <= error_ ? 0.0 : price;
    };
    std::vector<double> thresholds(ladder.size(), std::numeric_limits<double>::infinity());
    std::vector<double> onward(ladder.back()->errors.size());  // the cost of going on
    for (size_t row = 0; row < onward.size(); row += 2) {
      onward[row] = added.back() + ended(*ladder.back(), row);
    }
    for (size_t i = ladder.size() - 1; i-- > 0;) {
      const BoundedPlan& plan = *ladder[i];
      double saved = 0, most = 0;
      thresholds[i] = -1;
      for (const size_t row : orders_.at(&plan)) {
        saved += onward[row] - ended(plan, row);
        if (saved <= most) continue;
        most = saved;
        thresholds[i] = plan.bounds[row];
      }
      for (size_t row = 0; row < onward.size(); row += 2) {
        if (plan.bounds[row] <= thresholds[i]) onward[row] = ended(plan, row);
        onward[row] += added[i];
      }
    }
    return thresholds;
  }

  // The cheapest thresholds with the percentile, and their MACs. A high price always has it, where
  // the last plan does.
  std::pair<std::vector<double>, Outcome> Best(const Ladder& ladder) const {
    const double macs = ladder.back()->calibration.macs;
    double low = std::log(0.05 * macs), high = std::log(3000 * macs);
    std::vector<double> thresholds = Thresholds(ladder, std::exp(high));
    Outcome outcome = OutcomeOf(ladder, thresholds, payment_, 0);
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = 0.5 * (low + high);
      std::vector<double> others = Thresholds(ladder, std::exp(middle));
      const Outcome then = OutcomeOf(ladder, others, payment_, 0);
      if (then.p99 > error_) {
        low = middle;
        continue;
      }
      high = middle;
      thresholds = std::move(others);
      outcome = then;
    }
    return {std::move(thresholds), outcome};
  }

 private:
  double error_;
  Payment payment_;
  std::map<const BoundedPlan*, std::vector<size_t>> orders_;  // the even rows by their bounds
};

// All ladders of two and of three plans.
std::vector<Ladder> Ladders(const std::vector<BoundedPlan>& plans, const BoundedPlan& alone) {
  const Ladder all = RungsOf(plans, alone, kMacsMost * alone.calibration.macs);
  std::vector<Ladder> ladders;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i]->learned()) continue;
    for (size_t j = i + 1; j < all.size(); ++j) {
      ladders.push_back({all[i], all[j]});
      if (!all[j]->learned()) continue;
      for (size_t k = j + 1; k < all.size(); ++k) ladders.push_back({all[i], all[j], all[k]});
    }
  }
  return ladders;
}

}  // namespace

TunedLadder Tune(const std::vector<BoundedPlan>& plans, const BoundedPlan& alone, double error,
                 bool reused) {
  const Tuner tuner(plans, error, reused);
  TunedLadder best;
  double fewest = alone.calibration.macs;
  for (Ladder& ladder : Ladders(plans, alone)) {
    auto [thresholds, outcome] = tuner.Best(ladder);
    if (outcome.p99 > error || outcome.macs >= fewest) continue;
    fewest = outcome.macs;
    best = {.ladder = std::move(ladder), .thresholds = std::move(thresholds)};
  }
  return best;
}

}  // namespace hyperserve
