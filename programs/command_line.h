// The command line of the daemon and the trainer, by Abseil's flags.
#pragma once

#include <string>
#include <vector>

namespace hyperserve {

constexpr int kUsageExitCode = 2;  // the exit code of wrong usage

// Sets the flags that the line and its flag files name, and returns the other words, the program's
// name first. Ends the process with 0 after --version, and with kUsageExitCode and a message on
// stderr where a flag or a value is wrong; an unknown flag is answered with the known ones. Called
// once, by main, before the process has threads.
std::vector<char*> ParseFlags(const std::string& program, int argc, char** argv);

}  // namespace hyperserve
