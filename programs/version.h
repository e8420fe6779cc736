// Version and commit of this build. CMake writes the source of this header at every build
// (cmake/WriteCommit.cmake). Fixed at build time; any thread.
#pragma once

#include <string>
#include <string_view>

namespace hyperserve {

extern const char kVersion[];  // "0.1.0"
// "1a2b3c4d5e6f"; with "-dirty" where tracked files differ from the commit; "unknown" without git.
extern const char kCommit[];

// The line of `program --version`: "program 0.1.0 (commit 1a2b3c4d5e6f)" and a line break.
std::string VersionText(std::string_view program);

}  // namespace hyperserve
