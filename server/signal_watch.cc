#include "server/signal_watch.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace hyperserve {
namespace {

constexpr int kExitOfSignal = 128;  // as shells do: 130 for SIGINT, 143 for SIGTERM

std::atomic<int> first{0};  // 0: no signal yet

// As the kernel has a set of signals.
constexpr uint64_t Bit(int signal) { return uint64_t{1} << (signal - 1); }
constexpr uint64_t kHeldBack = Bit(SIGTERM) | Bit(SIGINT);

// Runs before every constructor, so it makes the system call alone: no library is ready yet, nor is
// a sanitizer.
__attribute__((no_sanitize("address", "undefined"))) void HoldSignalsBack() {
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &kHeldBack, nullptr, sizeof(kHeldBack));
}
__attribute__((section(".preinit_array"), used)) void (*hold_signals_back)() = HoldSignalsBack;

sigset_t OurSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

void End(int reason) {
  int none = 0;
  first.compare_exchange_strong(none, reason);
  first.notify_all();
}

void Watch(sigset_t signals) {
  int signal = 0;
  sigwait(&signals, &signal);
  End(signal);
  sigwait(&signals, &signal);
  _exit(kExitOfSignal + signal);
}

}  // namespace

void StartSignalWatch() {
  const sigset_t signals = OurSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread(Watch, signals).detach();
}

void LetSignalsEnd() {
  const sigset_t signals = OurSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void AskToEnd() { End(kOwnFault); }

bool SignalCame() { return first != 0; }

int WaitForSignal() {
  first.wait(0);
  return first;
}

}  // namespace hyperserve
