#include "client/frame/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace hyperserve {
namespace {

constexpr std::chrono::milliseconds kTerminalInterval{200};
constexpr std::chrono::seconds kLineInterval{5};

}  // namespace

Progress::Progress(std::string what, int64_t total, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      terminal_(isatty(STDERR_FILENO) == 1),
      shown_at_(Clock::now()) {}

Progress::~Progress() {
  if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::Advance(int64_t done) {
  const std::lock_guard lock(mutex_);
  done_ += done;
  const auto now = Clock::now();
  const Clock::duration interval = terminal_ ? Clock::duration(kTerminalInterval) : kLineInterval;
  if (now - shown_at_ < interval) return;
  shown_at_ = now;
  shown_ = true;
  const std::string of = total_ == 0 ? "" : "/" + std::to_string(total_);
  std::fprintf(stderr, "%s%s: %lld%s %s%s", terminal_ ? "\r" : "", what_.c_str(),
               static_cast<long long>(done_), of.c_str(), unit_.c_str(), terminal_ ? "" : "\n");
  std::fflush(stderr);
}

}  // namespace hyperserve
