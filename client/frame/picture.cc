#include "client/frame/picture.h"

#include "absl/strings/str_cat.h"
#include "client/frame/command.h"
#include "client/frame/output.h"
#include "client/frame/rows.h"
#include "core/base/status.h"
#include "programs/gnuplot.h"

namespace hyperserve {
namespace {

std::string Script(const std::string& title, const HostTensor& points) {
  std::string script = absl::StrCat(
      "set terminal pngcairo size 800,800 noenhanced\nset title ", GnuplotQuoted(title),
      "\nset size ratio -1\nset grid\nunset key\nset datafile separator ','\n",
      "plot '-' using 1:2 with points pointtype 7 pointsize 0.25 linecolor rgb '#301060a0'\n");
  const std::string lines = PrintCsv({"# x0", "x1"}, points, HostTensor());
  return absl::StrCat(script, lines, "e\n");
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
  const absl::StatusOr<std::string> png = RunGnuplot(Script(title, points));
  if (!png.ok()) return WithWayOut(png.status(), "install gnuplot, or write a .csv instead");
  return WriteOutFile(path, *png);
}

}  // namespace hyperserve
