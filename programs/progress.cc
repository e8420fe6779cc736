#include "programs/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "programs/time_after.h"

namespace hyperserve {
namespace {

constexpr std::chrono::milliseconds kTerminalInterval{200};
constexpr std::chrono::seconds kLineInterval{10};
constexpr char kClearLine[] = "\r\033[K";

}  // namespace

std::string DurationText(double seconds) {
  // Whoever asks for a number of rows without end waits without end.
  constexpr double kMost = 1e9;
  const int whole = static_cast<int>(std::lround(std::min(seconds, kMost)));
  if (whole < 60) return absl::StrCat(whole, " s");
  return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
}

std::string LeftText(double own, double whole) {
  if (!std::isnan(whole)) return absl::StrCat("  ", DurationText(whole), " left");
  return std::isnan(own) ? "" : absl::StrCat("  ", DurationText(own), " left of this part");
}

Progress::Progress(std::string what, int64_t total, std::string unit,
                   std::function<double()> seconds_left)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      seconds_left_(std::move(seconds_left)),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      shown_at_(start_) {}

Progress::~Progress() {
  if (shown_ && terminal_) std::fputs(kClearLine, stderr);
}

// `seconds`: since the start.
double Progress::SecondsLeft(double seconds) const {
  if (seconds_left_) return seconds_left_();
  return seconds / static_cast<double>(done_) * static_cast<double>(total_ - done_);
}

void Progress::Advance(int64_t more, const std::function<std::string()>& figures) {
  const std::lock_guard lock(mutex_);
  done_ += more;
  const Clock::time_point now = Clock::now();
  const Clock::duration interval = terminal_ ? Clock::duration(kTerminalInterval) : kLineInterval;
  const bool last = shown_ && done_ == total_;  // if any line was shown, the last count is, too
  if (now - shown_at_ < interval && !last) return;
  shown_at_ = now;
  shown_ = true;
  std::string line = absl::StrCat(what_, ": ", done_);
  if (total_ > 0) absl::StrAppend(&line, "/", total_);
  absl::StrAppend(&line, " ", unit_);
  if (figures) absl::StrAppend(&line, "  ", figures());
  if (total_ > 0 && done_ > 0) {
    const double own = SecondsLeft(std::chrono::duration<double>(now - start_).count());
    absl::StrAppend(&line, LeftText(own, WholeTimeLeft(own)));
  }
  std::fprintf(stderr, "%s%s%s", terminal_ ? kClearLine : "", line.c_str(), terminal_ ? "" : "\n");
  std::fflush(stderr);
}

void Progress::Say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  std::fprintf(stderr, "%s%s\n", shown_ && terminal_ ? kClearLine : "", line.c_str());
}

}  // namespace hyperserve
