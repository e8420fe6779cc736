// Preloaded into the daemon: its constructor sends SIGTERM to the process that loads it, before
// main and as early as a library can.
#include <unistd.h>

#include <csignal>

namespace {
[[maybe_unused]] const int sent = kill(getpid(), SIGTERM);
}  // namespace
