// Pictures drawn by the program gnuplot, which this process runs as a child.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hyperserve {

// Quotes `text` as a string of gnuplot's language.
std::string GnuplotQuoted(std::string_view text);

// Runs `script` and returns the bytes of the picture. The script must set a terminal, must not set
// an output file, and must contain its data. Blocks until gnuplot has ended. kFailedPrecondition
// where gnuplot is not installed; kInternal where it fails or draws nothing, with its own message
// on stderr. Not thread-safe: SIGPIPE is ignored in the whole process during the call.
absl::StatusOr<std::string> RunGnuplot(const std::string& script);

}  // namespace hyperserve
