// The command line: the options page as Abseil flags.
#pragma once

#include "server/options.h"

namespace hyperserve {

// Reads flags and flag files (--flagfile). What it returns has passed ValidateOptions. Ends the
// process with 0 after --help and --version, and with 2 and a message on stderr where a flag or a
// value is wrong. Call it once, first thing in main: no other thread may run yet.
Options ParseCommandLine(int argc, char** argv);

}  // namespace hyperserve
