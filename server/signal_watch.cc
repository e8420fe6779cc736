#include "server/signal_watch.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <future>
#include <thread>

namespace hyperserve {
namespace {

constexpr int kExitOfSignal = 128;  // as a shell says it: 130 for SIGINT, 143 for SIGTERM

// Never destroyed: the watching thread outlives main.
std::promise<int>& First() {
  static auto& first = *new std::promise<int>;
  return first;
}

void Watch(sigset_t signals) {
  int signal = 0;
  sigwait(&signals, &signal);
  First().set_value(signal);
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

int WaitForSignal() { return First().get_future().get(); }

}  // namespace hyperserve
