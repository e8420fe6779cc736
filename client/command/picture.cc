#include "client/command/picture.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/command/command.h"
#include "client/command/output.h"
#include "client/command/rows.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr int kNotFound = 127;  // what a shell answers for a program that it cannot find

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "''"}}), "'");
}

std::string Script(const std::string& title, const HostTensor& points) {
  std::string script = absl::StrCat(
      "set terminal pngcairo size 800,800 noenhanced\nset title ", Quoted(title),
      "\nset size ratio -1\nset grid\nunset key\nset datafile separator ','\n",
      "plot '-' using 1:2 with points pointtype 7 pointsize 0.25 linecolor rgb '#301060a0'\n");
  const std::string lines = PrintCsv({"# x0", "x1"}, points, HostTensor());
  return absl::StrCat(script, lines, "e\nexit\n");
}

// What gnuplot prints when it is given `script`, which must end in `exit`. Its standard output:
// told to write where it cannot, or where there is no room, gnuplot says nothing and exits with 0.
absl::StatusOr<std::string> RunGnuplot(const std::string& script) {
  int ends[2];
  if (pipe(ends) != 0) return absl::ErrnoToStatus(errno, "gnuplot: no pipe");
  const auto pipe_default = std::signal(SIGPIPE, SIG_IGN);  // one that ends early says so by code
  FILE* gnuplot = popen(absl::StrCat("exec gnuplot >/dev/fd/", ends[1]).c_str(), "w");
  close(ends[1]);
  std::string printed;
  int status = -1;
  if (gnuplot != nullptr) {
    std::fwrite(script.data(), 1, script.size(), gnuplot);
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
    return WithWayOut(absl::FailedPreconditionError("gnuplot is not installed"),
                      "install the package gnuplot-nox, or write a .csv instead");
  }
  if (status != 0 || printed.empty()) {
    return WithWayOut(absl::InternalError("gnuplot drew no picture"),
                      "its own words stand above; a .csv needs no gnuplot");
  }
  return printed;
}

}  // namespace

absl::Status WriteScatterPng(const std::string& path, const std::string& title,
                             const HostTensor& points) {
  if (points.shape.size() != 2 || points.shape[1] != 2) {
    return WithWayOut(
        absl::FailedPreconditionError(absl::StrCat(
            "a picture needs two-dimensional samples, these have shape ", ShapeText(points.shape))),
        "write a .csv instead");
  }
  HS_ASSIGN_OR_RETURN(const std::string png, RunGnuplot(Script(title, points)));
  return WriteOutFile(path, png);
}

}  // namespace hyperserve
