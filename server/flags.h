// The command line: the options page as Abseil flags.
#pragma once

#include "server/options.h"

namespace hyperserve {

// Reads flags and flag files. Ends the process where the line says so: 0 after --help and
// --version, 2 with words on stderr where a flag or a value is wrong.
Options ParseCommandLine(int argc, char** argv);

}  // namespace hyperserve
