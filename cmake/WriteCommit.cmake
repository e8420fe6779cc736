# cmake -DSOURCE=<root> -DOUT=<file.cc> -DVERSION=<x.y.z> -P WriteCommit.cmake: writes the commit as a C++ source, only if it
# has changed.
set(commit "unknown")
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET RESULT_VARIABLE failed)
if(NOT failed)
  execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD RESULT_VARIABLE dirty ERROR_QUIET)
  set(commit ${head})
  if(dirty)
    string(APPEND commit "-dirty")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
#include "programs/version.h"

namespace hyperserve {

const char kVersion[] = "@VERSION@";
const char kCommit[] = "@commit@";

std::string VersionText(std::string_view program) {
  return std::string(program) + " " + kVersion + " (commit " + kCommit + ")\n";
}

}  // namespace hyperserve
]] @ONLY)
