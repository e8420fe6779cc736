// How a program that works for long is asked to stop: by Ctrl-C (SIGINT) or SIGTERM.
#pragma once

#include "absl/status/status.h"

namespace hyperserve {

// From now on the first of these signals is a request; the second ends the process at once. Once in
// a process, by main.
void StopOnSignals();

// Asked by long loops between two pieces of work, which write nothing once it is true. Any thread.
bool StopRequested();

// kCancelled, in the words of whoever was asked to stop.
absl::Status Stopped();

}  // namespace hyperserve
