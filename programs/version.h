// What this build is. The commit is written by CMake at every build.
#pragma once

#include <string>
#include <string_view>

namespace hyperserve {

extern const char kVersion[];  // "0.1.0"
extern const char kCommit[];   // "1a2b3c4d5e6f", with "-dirty" where files differ; "unknown"

// One line, as `program --version` prints it.
std::string VersionText(std::string_view program);

}  // namespace hyperserve
