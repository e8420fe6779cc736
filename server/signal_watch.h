// SIGTERM and SIGINT, taken by one thread: the first asks the daemon to end, the second ends the
// process at once.
#pragma once

namespace hyperserve {

// Blocks both signals in this thread and all that it starts later, and starts the watching thread
// (which lives as long as the process). Call once, before any other thread is there.
void StartSignalWatch();

// Whether the first signal came. Thread-safe.
bool SignalCame();

// Waits for the first signal; its number. Returns at once when it has come already.
int WaitForSignal();

}  // namespace hyperserve
