// The progress of long work, on standard error. A terminal shows one line that changes every 0.2 s;
// elsewhere a plain line appears every 10 s. Short work shows nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace hyperserve {

// Rounded to seconds: "42 s", "3 min 05 s". Pure.
std::string DurationText(double seconds);
// The end of a line: "  42 s left", where `whole` is NaN "  7 s left of this part", where both are
// nothing. Pure.
std::string LeftText(double own, double whole);

// Advance may be called from any thread.
class Progress {
 public:
  // `what` and `unit` stand around the counts: "classify: 128/1000 rows  2 s left". A `total` of 0
  // means unknown. `seconds_left` tells the time that the work has left, NaN where it is not known;
  // without it, the units are taken to cost the same. A line tells the time until the end of all
  // (WholeTimeLeft); where that is not known, what this work has left "of this part".
  Progress(std::string what, int64_t total, std::string unit,
           std::function<double()> seconds_left = nullptr);
  // Clears the line on a terminal.
  ~Progress();

  // Adds `more` finished units and prints a line if one is due. Only then calls `figures`, if it is
  // set, under a lock, and prints its text after the counts. So an expensive text, such as a loss
  // that must be read from a GPU, costs little.
  // `more` is negative where work is done again.
  void Advance(int64_t more, const std::function<std::string()>& figures = nullptr);
  // A line of its own that stays, for what happens once. Any thread.
  void Say(const std::string& line);

 private:
  double SecondsLeft(double seconds) const;

  using Clock = std::chrono::steady_clock;

  const std::string what_, unit_;
  const int64_t total_;
  const std::function<double()> seconds_left_;
  const bool terminal_;
  const Clock::time_point start_;
  std::mutex mutex_;
  int64_t done_ = 0;            // guarded by mutex_
  Clock::time_point shown_at_;  // guarded by mutex_
  bool shown_ = false;          // guarded by mutex_
};

}  // namespace hyperserve
