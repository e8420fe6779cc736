// One thread takes SIGTERM and SIGINT. The first signal asks the daemon to end; the second ends the
// process at once with 128 + its number.
#pragma once

namespace hyperserve {

// Starts the watching thread, which lives as long as the process. Blocks both signals in the
// calling thread and in every thread that it starts later, so call it once, before any other thread
// runs.
void StartSignalWatch();

// Ends the daemon as a first signal would, for a fault of its own: WaitForSignal returns
// kOwnFault. Does nothing after a signal. Thread-safe.
void AskToEnd();
inline constexpr int kOwnFault = -1;

// Has the first signal come? Thread-safe; never waits.
bool SignalCame();

// Waits for the first signal and returns its number; at once where it has come already.
// Thread-safe.
int WaitForSignal();

}  // namespace hyperserve
