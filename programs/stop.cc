#include "programs/stop.h"

#include <atomic>
#include <csignal>

namespace hyperserve {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "it is set from a signal handler");

}  // namespace

void StopOnSignals() {
  struct sigaction stop = {};
  stop.sa_handler = [](int) { stop_requested.store(true, std::memory_order_relaxed); };
  stop.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &stop, nullptr);
  sigaction(SIGTERM, &stop, nullptr);
}

bool StopRequested() { return stop_requested.load(std::memory_order_relaxed); }

absl::Status Stopped() { return absl::CancelledError("stopped; nothing was written"); }

}  // namespace hyperserve
