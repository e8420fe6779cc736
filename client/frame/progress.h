// How far long work has come, on stderr: one line that changes on a terminal, plain lines now and
// then elsewhere, nothing at all for work that is done at once. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace hyperserve {

class Progress {
 public:
  // `what` is shown before the counts: "classify: 128/1000 rows".
  Progress(std::string what, int64_t total, std::string unit);
  ~Progress();  // ends the changing line

  void Advance(int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_, unit_;
  const int64_t total_;
  const bool terminal_;
  std::mutex mutex_;
  int64_t done_ = 0;            // guarded by mutex_
  Clock::time_point shown_at_;  // guarded by mutex_
  bool shown_ = false;          // guarded by mutex_
};

}  // namespace hyperserve
