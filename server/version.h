// What this build is. The commit is written by CMake at every build.
#pragma once

#include <string>

namespace hyperserve {

extern const char kVersion[];  // "0.1.0"
extern const char kCommit[];   // "1a2b3c4d5e6f", with "-dirty" where files differ; "unknown"

std::string VersionText();  // one line, as --version prints it

}  // namespace hyperserve
