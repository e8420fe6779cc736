// One thread takes SIGTERM and SIGINT. The first signal asks the daemon to end; the second ends the
// process at once with 128 + its number.
//
// Both are held back from before the first constructor of any library on, until one of the first
// two functions below is called. LibTorch's constructors take 0.3 s, and process 1 loses every
// signal that it neither handles nor holds back.
#pragma once

namespace hyperserve {

// Starts the watching thread, which lives as long as the process. Blocks both signals in the
// calling thread and in every thread that it starts later, so call it once, before any other thread
// runs.
void StartSignalWatch();

// For work without a watch: both signals end the process, also one that was held back. Call it
// before any other thread runs.
void LetSignalsEnd();

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
