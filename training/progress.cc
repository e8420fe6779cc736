#include "training/progress.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hyperserve {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "it is set from a signal handler");

constexpr std::chrono::milliseconds kTerminalInterval{200};
constexpr std::chrono::seconds kLogInterval{10};

}  // namespace

bool StopRequested() { return stop_requested.load(std::memory_order_relaxed); }
void RequestStop() { stop_requested.store(true, std::memory_order_relaxed); }
absl::Status Stopped() { return absl::CancelledError("stopped; nothing was written"); }

Progress::Progress(std::string label, int total)
    : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (width_ > 0) std::fputc('\n', stderr);
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Progress::Update(int done, const std::function<std::string()>& figures) {
  const Clock::time_point now = Clock::now();
  const bool due =
      terminal_ ? now - last_line_ >= kTerminalInterval : now - last_line_ >= kLogInterval;
  if (!due && done != total_) return;
  last_line_ = now;
  const double left = seconds() / done * (total_ - done);
  const std::string line =
      absl::StrFormat("%s %d/%d  %s  %s left", label_, done, total_, figures(), DurationText(left));
  if (terminal_) {
    std::fprintf(stderr, "\r%-*s", static_cast<int>(width_), line.c_str());
    width_ = line.size();
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

void Progress::Note(std::string_view text) {
  const std::string line(text);
  std::fprintf(stderr, width_ > 0 ? "\r%-*s\n" : "%-*s\n", static_cast<int>(width_), line.c_str());
  width_ = 0;
}

std::string DurationText(double seconds) {
  const int whole = static_cast<int>(std::lround(seconds));
  if (whole < 60) return absl::StrCat(whole, " s");
  return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
}

}  // namespace hyperserve
