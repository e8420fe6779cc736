#include "training/measure/picture.h"

#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/plan/plan.h"
#include "programs/gnuplot.h"

namespace hyperserve {
namespace {

// "hyper_heun" of "hyper_heun:2": the plans of one line.
std::string LineOf(const Plan& plan) {
  const std::string text = PrintPlan(plan);
  return text.substr(0, text.find(':'));
}

std::string Panel(const std::string& x_label, int column, const std::vector<std::string>& lines) {
  std::vector<std::string> curves;
  for (const std::string& line : lines) {
    curves.push_back(
        absl::StrFormat("$%s using %d:3 with linespoints title \"%s\"", line, column, line));
  }
  return absl::StrFormat("set xlabel \"%s\"\nplot %s\n", x_label, absl::StrJoin(curves, ", "));
}

}  // namespace

std::string CalibrationPlot(const std::string& title, const std::vector<PlanCalibration>& plans) {
  std::map<std::string, std::string> data;
  for (const PlanCalibration& plan : plans) {
    std::string& rows = data[LineOf(plan.plan)];
    absl::StrAppendFormat(&rows, "%g %g %g\n", plan.nfe, plan.macs, plan.error_mean);
  }
  std::string script;
  std::vector<std::string> lines;
  for (const auto& [line, rows] : data) {
    absl::StrAppendFormat(&script, "$%s << EOD\n%sEOD\n", line, rows);
    lines.push_back(line);
  }
  absl::StrAppendFormat(
      &script,
      "set terminal pngcairo size 1200,520 noenhanced\nset multiplot layout 1,2 title %s\n"
      "set logscale xy\nset grid\nset ylabel \"error\"\nset format y \"%%g\"\n%s%s"
      "unset multiplot\n",
      GnuplotQuoted(title + ": mean relative error of z(s1)"), Panel("evaluations of f", 1, lines),
      Panel("multiply-accumulates, g included", 2, lines));
  return script;
}

absl::Status DrawCalibration(const std::string& title, const std::vector<PlanCalibration>& plans,
                             const std::string& path) {
  HS_ASSIGN_OR_RETURN(const std::string png, RunGnuplot(CalibrationPlot(title, plans)));
  return WriteFileAtomically(path, png);
}

}  // namespace hyperserve
