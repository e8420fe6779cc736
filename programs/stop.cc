#include "programs/stop.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace hyperserve {
namespace {

constexpr unsigned kSecondsToEnd = 1;
constexpr int kExitCodeOfSignals = 128;  // plus the number, as shells count

// The signal that asked; 0: none.
std::atomic<int> stop_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "it is set from a signal handler");

}  // namespace

void StopOnSignals() {
  struct sigaction late = {};
  late.sa_handler = [](int) {
    constexpr char kWords[] = "stopped in the middle of an operation; nothing was written\n";
    (void)!write(STDERR_FILENO, kWords, sizeof(kWords) - 1);
    _exit(kExitCodeOfSignals + stop_signal.load(std::memory_order_relaxed));
  };
  sigaction(SIGALRM, &late, nullptr);
  struct sigaction stop = {};
  stop.sa_handler = [](int signal) {
    stop_signal.store(signal, std::memory_order_relaxed);
    alarm(kSecondsToEnd);
  };
  stop.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &stop, nullptr);
  sigaction(SIGTERM, &stop, nullptr);
}

bool StopRequested() { return stop_signal.load(std::memory_order_relaxed) != 0; }

absl::Status Stopped() { return absl::CancelledError("stopped; nothing was written"); }

}  // namespace hyperserve
