// What comes after the work that a Progress counts, so that the progress lines of a command of many
// parts tell one time: that until the end of the whole. Main thread only: where one is alive, no
// other thread calls Progress::Advance.
#pragma once

#include <functional>
#include <limits>

namespace hyperserve {

inline constexpr double kTimeUnknown = std::numeric_limits<double>::quiet_NaN();

// Within its life, lines of progress count this time in. Several add up, as where a part of the
// work has parts of its own. It begins as unknown.
class TimeAfter {
 public:
  TimeAfter();
  ~TimeAfter();
  TimeAfter(const TimeAfter&) = delete;
  TimeAfter& operator=(const TimeAfter&) = delete;

  // Known within a factor of two, or kTimeUnknown.
  void Set(double seconds);
  void Set(std::function<double()> seconds);
  // Known within a factor of four. It is told where the time of all holds within two nevertheless.
  void SetRough(double seconds);

 private:
  friend double WholeTimeLeft(double own);
  std::function<double()> sure_;
  double rough_ = 0;
};

// The time left of the whole, where the work that is counted has `own` left. kTimeUnknown where it
// would not hold within a factor of two.
double WholeTimeLeft(double own);

}  // namespace hyperserve
