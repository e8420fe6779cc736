#include "server/memory_watch.h"

#include <malloc.h>
#include <poll.h>

#include "server/metrics/process_figures.h"

namespace hyperserve {
namespace {

constexpr int kPauseMs = 100;
constexpr int kTurnsOfTrim = 10;  // it locks the allocator, so once a second
constexpr double kEndShare = 0.95;

}  // namespace

bool MemoryIsFull(bool was_full, double bytes, double bytes_max) {
  return bytes > (was_full ? kEndShare * bytes_max : bytes_max);
}

MemoryWatch::MemoryWatch(double bytes_max, std::atomic<bool>* full)
    : bytes_max_(bytes_max), full_(full), thread_([this] { Run(); }) {}

MemoryWatch::~MemoryWatch() {
  ending_ = true;
  wake_.Call();
  thread_.join();
}

void MemoryWatch::Run() {
  pollfd woken{.fd = wake_.fd(), .events = POLLIN, .revents = 0};
  const auto look = [this] {
    *full_ = MemoryIsFull(*full_, ReadProcessMemory().own_bytes, bytes_max_);
  };
  for (int turn = 0; !ending_; ++turn) {
    look();
    // The allocator keeps what was freed between what is in use: after a flood, for good.
    if (*full_ && turn % kTurnsOfTrim == 0) {
      malloc_trim(0);
      look();
    }
    (void)poll(&woken, 1, kPauseMs);
  }
}

}  // namespace hyperserve
