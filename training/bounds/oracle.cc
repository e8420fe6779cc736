#include "training/bounds/oracle.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace hyperserve {
namespace {

constexpr size_t kMissesOneIn = 100;
constexpr double kNever = std::numeric_limits<double>::infinity();

// The mean over the rows, of which so many may miss; `costs` are those of the rows that need not,
// kNever where no plan is exact enough. Rows that may miss pay `least`.
double MeanWithMisses(std::vector<double> costs, double least) {
  const size_t misses = costs.size() / kMissesOneIn;
  const auto dearest = costs.begin() + static_cast<std::ptrdiff_t>(misses);
  std::nth_element(costs.begin(), dearest, costs.end(), std::greater<>());
  std::fill(costs.begin(), dearest, least);
  double sum = 0;
  for (const double cost : costs) sum += cost;
  return sum / static_cast<double>(costs.size());
}

// Of a ladder that has the plans at these places. The bits of `exact` of a row: which of all plans
// have at most the error.
double MeanOf(const std::vector<uint32_t>& exact, const std::vector<size_t>& places,
              const std::vector<double>& added) {
  std::vector<double> paid(added.size());
  std::partial_sum(added.begin(), added.end(), paid.begin());
  std::vector<double> costs;
  costs.reserve(exact.size());
  for (const uint32_t bits : exact) {
    double cost = kNever;
    for (size_t i = 0; i < places.size() && cost == kNever; ++i) {
      if (bits >> places[i] & 1) cost = paid[i];
    }
    costs.push_back(cost);
  }
  return MeanWithMisses(std::move(costs), paid.front());
}

}  // namespace

OracleMacs MacsOfOracles(const std::vector<BoundedPlan>& plans, const BoundedPlan& alone,
                         double error, size_t first) {
  const Ladder all = RungsOf(plans, alone);
  std::vector<double> cheapest;
  std::vector<uint32_t> exact;
  for (size_t row = first; row < alone.errors.size(); row += 2) {
    double cost = kNever;
    for (const BoundedPlan& plan : plans) {
      if (plan.errors[row] <= error) cost = std::min(cost, plan.calibration.macs);
    }
    cheapest.push_back(cost);
    uint32_t bits = 0;
    for (size_t i = 0; i < all.size(); ++i) bits |= uint32_t{all[i]->errors[row] <= error} << i;
    exact.push_back(bits);
  }
  OracleMacs best{.free = MeanWithMisses(std::move(cheapest), plans.front().calibration.macs),
                  .reused = kNever,
                  .paid = kNever};
  for (uint32_t set = 1; set < uint32_t{1} << all.size(); ++set) {
    Ladder ladder;
    std::vector<size_t> places;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!(set >> i & 1)) continue;
      ladder.push_back(all[i]);
      places.push_back(i);
    }
    best.reused = std::min(best.reused, MeanOf(exact, places, MacsAdded(ladder, {.reused = true})));
    best.paid = std::min(best.paid, MeanOf(exact, places, MacsAdded(ladder, {})));
  }
  return best;
}

}  // namespace hyperserve
