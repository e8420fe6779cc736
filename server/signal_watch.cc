#include "server/signal_watch.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace hyperserve {
namespace {

constexpr int kExitOfSignal = 128;  // as shells do: 130 for SIGINT, 143 for SIGTERM

std::atomic<int> first{0};  // 0: no signal yet

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
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread(Watch, signals).detach();
}

void AskToEnd() { End(kOwnFault); }

bool SignalCame() { return first != 0; }

int WaitForSignal() {
  first.wait(0);
  return first;
}

}  // namespace hyperserve
