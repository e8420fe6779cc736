// Requests to stop a long-running program: Ctrl-C (SIGINT) or SIGTERM.
#pragma once

#include "absl/status/status.h"

namespace hyperserve {

// From now on the first signal of each kind is a request to stop, and the second ends the process
// at once. A process that has not ended a second after the first request ends then, with 128 and
// the number of the signal: one operation of LibTorch may take longer. Files are renamed into their
// places when they are whole, so none is left half written; a temporary one may be left, which the
// next writer removes. Called once, by main.
void StopOnSignals();

// True after a request to stop. Long loops call it between two pieces of work; once it is true they
// end and write nothing. Any thread.
bool StopRequested();

// kCancelled: the status of a program that stopped on request.
absl::Status Stopped();

}  // namespace hyperserve
