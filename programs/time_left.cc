#include "programs/time_left.h"

#include <algorithm>
#include <limits>

namespace hyperserve {

size_t TimeLeft::Expect(int64_t pieces, double cost) {
  kinds_.push_back({.left = pieces, .cost = cost});
  return kinds_.size() - 1;
}

void TimeLeft::Note(size_t kind, double seconds) {
  Skip(kind, 1);
  Add(kind, seconds);
}

void TimeLeft::Add(size_t kind, double seconds) {
  ++kinds_[kind].done;
  kinds_[kind].seconds += seconds;
}

void TimeLeft::Skip(size_t kind, int64_t pieces) {
  kinds_[kind].left = std::max<int64_t>(kinds_[kind].left - pieces, 0);
}

void TimeLeft::Limit(size_t kind, double seconds) {
  kinds_[kind].most = kinds_[kind].seconds + seconds;
}

double TimeLeft::noted_seconds() const {
  double sum = 0;
  for (const Kind& kind : kinds_) sum += kind.seconds;
  return sum;
}

double TimeLeft::Seconds() const {
  double cost = 0, left = 0;
  for (const Kind& kind : kinds_) cost += kind.cost * static_cast<double>(kind.done);
  if (cost <= 0 && costs_ == Costs::kAnyUnit) return std::numeric_limits<double>::quiet_NaN();
  const double seconds_per_cost = cost > 0 ? noted_seconds() / cost : 1;
  for (const Kind& kind : kinds_) {
    const double each = kind.done > 0 ? kind.seconds / static_cast<double>(kind.done)
                                      : kind.cost * seconds_per_cost;
    left += std::clamp(kind.most - kind.seconds, 0.0, static_cast<double>(kind.left) * each);
  }
  return left;
}

}  // namespace hyperserve
