#include "programs/time_after.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace hyperserve {
namespace {

// If a time within [r / 4, 4 r] joins one of s, then r + s is within a factor of two of the sum as
// long as r is at most this share of s: 4 r + s <= 2 (r + s).
constexpr double kRoughShare = 0.5;

std::vector<const TimeAfter*>& All() {
  static auto* const all = new std::vector<const TimeAfter*>;
  return *all;
}

}  // namespace

TimeAfter::TimeAfter() : sure_([] { return kTimeUnknown; }) { All().push_back(this); }

TimeAfter::~TimeAfter() { std::erase(All(), this); }

void TimeAfter::Set(double seconds) {
  Set([seconds] { return seconds; });
}

void TimeAfter::Set(std::function<double()> seconds) {
  sure_ = std::move(seconds);
  rough_ = 0;
}

void TimeAfter::SetRough(double seconds) {
  Set(0);
  rough_ = seconds;
}

double WholeTimeLeft(double own) {
  double sure = own, rough = 0;
  for (const TimeAfter* one : All()) {
    sure += one->sure_();
    rough += one->rough_;
  }
  return rough <= kRoughShare * sure ? sure + rough : kTimeUnknown;
}

}  // namespace hyperserve
