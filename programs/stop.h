// Requests to stop a long-running program: Ctrl-C (SIGINT) or SIGTERM.
#pragma once

#include "absl/status/status.h"

namespace hyperserve {

// From now on the first signal of each kind is a request to stop, and the second ends the process
// at once. Called once, by main.
void StopOnSignals();

// True after a request to stop. Long loops call it between two pieces of work; once it is true they
// end and write nothing. Any thread.
bool StopRequested();

// kCancelled: the status of a program that stopped on request.
absl::Status Stopped();

}  // namespace hyperserve
