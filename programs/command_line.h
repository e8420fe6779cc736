// A program's command line, by Abseil's flags.
#pragma once

#include <string>
#include <vector>

namespace hyperserve {

constexpr int kUsageExitCode = 2;  // of a program that was called wrongly

// Reads flags and flag files, and gives the words that are none, the program's name first. Ends the
// process where the line says so: with 0 after --version, with kUsageExitCode and Abseil's words
// on stderr where a flag or a value is wrong. Once in a process, before it has threads.
std::vector<char*> ParseFlags(const std::string& program, int argc, char** argv);

}  // namespace hyperserve
