// How far long work has come, on standard error: one line that changes on a terminal, plain lines
// now and then elsewhere, nothing at all for work that is done at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace hyperserve {

// "42 s", "3 min 05 s".
std::string DurationText(double seconds);

// Thread-safe.
class Progress {
 public:
  // `what` and `unit` stand around the counts: "classify: 128/1000 rows  2 s left". `total` 0: it
  // is not known.
  Progress(std::string what, int64_t total, std::string unit);
  // Clears the changing line.
  ~Progress();

  // So many more are done. `figures`, if given, are shown beside the counts, and asked for only
  // when a line is due: reading a loss from a GPU waits for it.
  void Advance(int64_t more, const std::function<std::string()>& figures = nullptr);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_, unit_;
  const int64_t total_;
  const bool terminal_;
  const Clock::time_point start_;
  std::mutex mutex_;
  int64_t done_ = 0;            // guarded by mutex_
  Clock::time_point shown_at_;  // guarded by mutex_
  bool shown_ = false;          // guarded by mutex_
};

}  // namespace hyperserve
