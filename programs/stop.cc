#include "programs/stop.h"

#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>

namespace hyperserve {
namespace {

constexpr suseconds_t kMicrosecondsToEnd = 700'000;
constexpr int kExitCodeOfSignals = 128;  // plus the number, as shells count

// The signal that asked; 0: none.
std::atomic<int> stop_signal = 0;
// Results are being written, or were: it is too late to stop.
std::atomic<bool> writing = false, written = false;
static_assert(std::atomic<int>::is_always_lock_free, "it is set from a signal handler");
static_assert(std::atomic<bool>::is_always_lock_free, "they are read in a signal handler");

template <size_t kSize>
void Say(const char (&words)[kSize]) {
  (void)!write(STDERR_FILENO, words, kSize - 1);
}

void EndSoon() {
  const itimerval once = {.it_interval = {},
                          .it_value = {.tv_sec = 0, .tv_usec = kMicrosecondsToEnd}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

void EndLate(int) {
  if (writing) return;
  if (written) {
    Say("stopped in the middle of an operation; what was written before is whole\n");
  } else {
    Say("stopped in the middle of an operation; nothing was written\n");
  }
  _exit(StopExitCode());
}

}  // namespace

void StopOnSignals() {
  struct sigaction late = {};
  late.sa_handler = EndLate;
  sigaction(SIGALRM, &late, nullptr);
  struct sigaction stop = {};
  stop.sa_handler = [](int signal) {
    stop_signal.store(signal, std::memory_order_relaxed);
    EndSoon();
  };
  stop.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &stop, nullptr);
  sigaction(SIGTERM, &stop, nullptr);
}

bool StopRequested() { return stop_signal.load(std::memory_order_relaxed) != 0; }

absl::Status Stopped() { return absl::CancelledError("stopped; nothing was written"); }

int StopExitCode() { return kExitCodeOfSignals + stop_signal.load(std::memory_order_relaxed); }

absl::Status WriteUnlessStopped(const std::function<absl::Status()>& write) {
  writing = true;  // before the look: a request after it finds it set
  if (StopRequested()) {
    writing = false;
    return Stopped();
  }
  absl::Status status = write();
  written = true;
  writing = false;
  if (StopRequested()) EndSoon();  // what follows may be stopped
  return status;
}

}  // namespace hyperserve
