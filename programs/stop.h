// Requests to stop a long-running program: Ctrl-C (SIGINT) or SIGTERM.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace hyperserve {

// From now on the first signal of each kind is a request to stop, and the second ends the process
// at once. A process that has not ended 0.7 s after the first request ends then, with 128 and
// the number of the signal: one operation of LibTorch may take longer. Files are renamed into their
// places when they are whole, so none is left half written. Called once, by main.
void StopOnSignals();

// True after a request to stop. Long loops call it between two pieces of work; once it is true they
// end and write nothing. Any thread.
bool StopRequested();

// kCancelled: the status of a program that stopped on request.
absl::Status Stopped();
// The exit code of a program that stopped on request: 128 and the number of the signal.
int StopExitCode();

// Calls `write`, which writes the results, and returns what it returns. Either a request to stop
// came before, and nothing is written (Stopped), or all is: one that comes meanwhile is too late,
// and the process ends as if it had not come. One thread at a time.
absl::Status WriteUnlessStopped(const std::function<absl::Status()>& write);

}  // namespace hyperserve
