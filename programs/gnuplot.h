// Pictures, drawn by the program gnuplot.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hyperserve {

// `text` as a string of gnuplot's language, in its quotes.
std::string GnuplotQuoted(std::string_view text);

// The bytes of the picture that gnuplot draws by `script`, which must set a terminal, no output
// file, and hold its own data. kFailedPrecondition where gnuplot is not installed; kInternal, with
// gnuplot's own words on stderr, where it fails or draws nothing. Not thread-safe: SIGPIPE is
// ignored meanwhile.
absl::StatusOr<std::string> RunGnuplot(const std::string& script);

}  // namespace hyperserve
