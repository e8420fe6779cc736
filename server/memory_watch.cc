#include "server/memory_watch.h"

#include <poll.h>

#include "server/metrics/process_figures.h"

namespace hyperserve {
namespace {

constexpr int kPauseMs = 100;
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
  while (!ending_) {
    *full_ = MemoryIsFull(*full_, ReadProcessMemory().own_bytes, bytes_max_);
    (void)poll(&woken, 1, kPauseMs);
  }
}

}  // namespace hyperserve
