#include "client/command/picture.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/command/rows.h"

namespace hyperserve {
namespace {

constexpr int kNotFound = 127;  // what a shell answers for a program that it cannot find

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "''"}}), "'");
}

std::string Script(const std::string& path, const std::string& title, const HostTensor& points) {
  std::string script = absl::StrCat(
      "set terminal pngcairo size 800,800 noenhanced\nset output ", Quoted(path), "\nset title ",
      Quoted(title), "\nset size ratio -1\nset grid\nunset key\nset datafile separator ','\n",
      "plot '-' using 1:2 with points pointtype 7 pointsize 0.25 linecolor rgb '#301060a0'\n");
  const std::string lines = PrintCsv({"# x0", "x1"}, points, HostTensor());
  return absl::StrCat(script, lines, "e\n");
}

// What opening the picture made, where nothing was drawn into it.
void RemoveEmpty(const std::string& path) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) == 0 && !error) std::filesystem::remove(path, error);
}

}  // namespace

absl::Status WriteScatterPng(const std::string& path, const std::string& title,
                             const HostTensor& points) {
  if (points.shape.size() != 2 || points.shape[1] != 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("a picture needs two-dimensional samples, these have shape ",
                     ShapeText(points.shape), ": write a .csv instead"));
  }
  // gnuplot told to write where it cannot pours the picture onto its standard output instead.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
  close(fd);
  std::signal(SIGPIPE, SIG_IGN);  // a gnuplot that ends early is told by its exit code
  FILE* gnuplot = popen("gnuplot >/dev/null", "w");
  if (gnuplot == nullptr) return absl::InternalError("gnuplot: no process could be started");
  const std::string script = Script(path, title, points);
  std::fwrite(script.data(), 1, script.size(), gnuplot);
  const int status = pclose(gnuplot);
  RemoveEmpty(path);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) {
    return absl::FailedPreconditionError(
        "gnuplot is not installed: install the package gnuplot-nox, or write a .csv instead");
  }
  if (status != 0 || access(path.c_str(), R_OK) != 0) {
    return absl::InternalError(
        absl::StrCat("gnuplot wrote no picture to ", path, "; its own words stand above"));
  }
  return absl::OkStatus();
}

}  // namespace hyperserve
