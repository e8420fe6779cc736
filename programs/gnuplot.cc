#include "programs/gnuplot.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr int kNotFound = 127;  // a shell's exit code for a program that it cannot find

}  // namespace

std::string GnuplotQuoted(std::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(Absl(text), {{"'", "''"}}), "'");
}

// Reads the picture from a pipe and lets gnuplot write no file: where gnuplot cannot write an
// output file, or the disk is full, it reports nothing and exits with 0.
absl::StatusOr<std::string> RunGnuplot(const std::string& script) {
  int ends[2];
  if (pipe(ends) != 0) return absl::ErrnoToStatus(errno, "gnuplot: no pipe");
  const auto pipe_default = std::signal(SIGPIPE, SIG_IGN);  // an early end shows in the exit code
  FILE* gnuplot = popen(absl::StrCat("exec gnuplot >/dev/fd/", ends[1]).c_str(), "w");
  close(ends[1]);
  std::string printed;
  int status = -1;
  if (gnuplot != nullptr) {
    std::fwrite(script.data(), 1, script.size(), gnuplot);
    std::fputs("\nexit\n", gnuplot);  // its input stays open until its output has been read
    std::fflush(gnuplot);
    std::array<char, 1 << 16> part;
    for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;) {
      printed.append(part.data(), static_cast<size_t>(got));
    }
    status = pclose(gnuplot);
  }
  close(ends[0]);
  std::signal(SIGPIPE, pipe_default);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) {
    return absl::FailedPreconditionError("gnuplot is not installed; its package is gnuplot-nox");
  }
  if (status != 0 || printed.empty()) {
    return absl::InternalError("gnuplot drew no picture; its own words stand on stderr");
  }
  return printed;
}

}  // namespace hyperserve
