// What a run says while it works: one line that is rewritten on a terminal, plain lines now and
// then elsewhere; and how it is asked to stop.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hyperserve {

// Set by main's signal handlers; long loops ask it between iterations and write nothing after it.
bool StopRequested();
void RequestStop();      // async-signal-safe
absl::Status Stopped();  // kCancelled, in the words of whoever was asked to stop

class Progress {
 public:
  // Writes to standard error. `total`: iterations to come.
  Progress(std::string label, int total);
  ~Progress();

  // After iteration `done` (1-based). `figures` is asked only when a line is due: reading a loss
  // from a GPU waits for it.
  void Update(int done, const std::function<std::string()>& figures);
  // Says something that stays.
  void Note(std::string_view text);
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  const std::string label_;
  const int total_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_line_ = start_;
  size_t width_ = 0;  // of the line that stands on the terminal
};

// "42 s", "3 min 05 s".
std::string DurationText(double seconds);

}  // namespace hyperserve
