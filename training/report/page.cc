#include "training/report/page.h"

#include <algorithm>
#include <array>
#include <span>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

constexpr char kClassical[] = "#566573", kHyper[] = "#b9770e", kLearned[] = "#c0392b";
// What a default plan owes: a mean error, and of classifiers the labels of the reference.
constexpr double kClassifierError = 0.01, kFlowError = 0.005, kAgreement = 0.995;

struct Bar {
  int evaluations;
  double ratio;
};
constexpr std::array<Bar, 6> kClassifierBars = {
    {{1, .60}, {2, .60}, {3, .42}, {4, .42}, {6, .35}, {8, .40}}};
constexpr std::array<Bar, 6> kFlowBars = {
    {{1, .25}, {2, .25}, {3, .25}, {4, .25}, {6, .35}, {8, .50}}};

using Cells = std::vector<std::string>;

std::string Row(const Cells& cells, const std::string& tag) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) {
    absl::StrAppendFormat(&row, "<%s>%s</%s>", tag, Escaped(cell), tag);
  }
  return row + "</tr>\n";
}

std::string Table(const Cells& head, const std::vector<Cells>& rows) {
  std::string table = "<table>" + Row(head, "th");
  for (const Cells& row : rows) table += Row(row, "td");
  return table + "</table>\n";
}

bool IsLearned(const PlanCalibration& plan) {
  return plan.plan.fixed() != nullptr && plan.plan.fixed()->method.method == Method::kLearned;
}

std::vector<PlanCalibration> AllPlans(const ReportContent& content) {
  std::vector<PlanCalibration> plans = content.calibration.plans;
  plans.insert(plans.end(), content.corrected.begin(), content.corrected.end());
  return plans;
}

// The exact plans over a cost, by family. Learned ones are joined.
std::string Front(const std::vector<PlanCalibration>& plans, const std::string& label,
                  double PlanCalibration::*cost, double scale) {
  std::vector<ChartSeries> series = {{.name = "classical", .colour = kClassical, .points = {}},
                                     {.name = "hyper", .colour = kHyper, .points = {}},
                                     {.name = "learned", .colour = kLearned, .points = {}}};
  series[2].joined = true;
  for (const PlanCalibration& plan : plans) {
    if (plan.plan.tier != Tier::kExact) continue;
    const int family = IsLearned(plan) ? 2 : plan.plan.hypersolved() ? 1 : 0;
    series[family].points.push_back(
        {scale * (plan.*cost), plan.error_mean,
         absl::StrFormat("%s: error %.3g, %.3g MACs, %.3g us a row", PrintPlan(plan.plan),
                         plan.error_mean, plan.macs, 1e6 * plan.seconds_per_row)});
  }
  std::erase_if(series, [](const ChartSeries& one) { return one.points.empty(); });
  return LogChart(label, "mean relative error", series);
}

std::string MacsFront(const std::vector<PlanCalibration>& plans) {
  return Front(plans, "multiply-accumulates a row", &PlanCalibration::macs, 1);
}

std::string Verdict(const Contest& contest, std::optional<double> bar) {
  if (!bar.has_value()) return "no bar";
  return contest.ratio() <= *bar ? "met" : "missed";
}

std::string Bars(const ReportContent& content) {
  std::vector<Cells> rows;
  for (const Contest& contest : content.contests) {
    const auto bar = RatioBar(content.kind, contest.evaluations);
    rows.push_back(
        {absl::StrFormat("learned:%d", contest.evaluations), absl::StrFormat("%.3g", contest.macs),
         absl::StrFormat("%.3g", contest.error), contest.rival,
         absl::StrFormat("%.3g", contest.rival_error), absl::StrFormat("%.3f", contest.ratio()),
         bar.has_value() ? absl::StrFormat("%.2f", *bar) : "-", Verdict(contest, bar),
         absl::StrFormat("%.3g", contest.p99), absl::StrFormat("%.3g", contest.rival_p99)});
  }
  return Table({"plan", "MACs", "error", "best classical plan", "its error", "ratio", "at most",
                "the bar is", "99 %", "99 % of the classical plan"},
               rows);
}

// Whether the default plan is what it should be.
std::string DefaultVerdict(const ReportContent& content,
                           const std::vector<PlanCalibration>& plans) {
  const Plan plan = DefaultPlanOf(content.calibration);
  const auto found = std::ranges::find(plans, plan, &PlanCalibration::plan);
  const bool classifier = content.kind == ModelKind::kClassifier;
  const double limit = classifier ? kClassifierError : kFlowError;
  std::string text = absl::StrFormat("The default plan is %s", PrintPlan(plan));
  if (found == plans.end()) return text + ", which was not measured: the bar is missed.";
  absl::StrAppendFormat(&text, ": mean error %.3g of at most %.3g", found->error_mean, limit);
  if (classifier) {
    absl::StrAppendFormat(&text, ", %.2f %% of the reference's labels of at least %.1f %%",
                          100 * found->agreement, 100 * kAgreement);
  }
  const bool met = IsLearned(*found) && found->error_mean <= limit &&
                   (!classifier || found->agreement >= kAgreement);
  return text + (met                 ? ". It is learned: the bar is met."
                 : IsLearned(*found) ? ". The bar is missed."
                                     : ". It is not learned: the bar is missed.");
}

std::string PlanTable(const ReportContent& content, const std::vector<PlanCalibration>& plans) {
  std::vector<Cells> rows;
  for (const PlanCalibration& plan : plans) {
    rows.push_back(
        {PrintPlan(plan.plan), absl::StrFormat("%.3e", plan.error_mean),
         plan.error_p99 > 0 ? absl::StrFormat("%.3e", plan.error_p99) : "-",
         absl::StrFormat("%.3e", plan.error_max),
         plan.log_density_error ? absl::StrFormat("%.1e", *plan.log_density_error) : "-",
         content.kind == ModelKind::kClassifier ? absl::StrFormat("%.4f", plan.agreement) : "-",
         absl::StrFormat("%.1f", plan.nfe), absl::StrFormat("%.4g", plan.macs),
         absl::StrFormat("%.2f", 1e6 * plan.seconds_per_row),
         !plan.plan.hypersolved() ? ""
         : plan.wins              ? "yes"
                                  : "no",
         plan.heavy_tail ? "yes" : ""});
  }
  return Table({"plan", "error, mean", "99 %", "largest", "log-density, nats", "labels", "NFE",
                "MACs", "us a row", "wins", "heavy tail"},
               rows);
}

std::string Section(const std::string& title, const std::string& content) {
  return content.empty() ? "" : absl::StrFormat("<h2>%s</h2>\n%s", Escaped(title), content);
}

std::string Paragraph(const std::string& text) { return "<p>" + Escaped(text) + "</p>\n"; }

std::string Residuals(const ReportContent& content) {
  std::string all;
  for (const Contest& contest : content.contests) {
    std::vector<ChartSeries> series = {
        {absl::StrFormat("learned:%d", contest.evaluations), kLearned, {}},
        {contest.rival, kClassical, {}}};
    for (const double error : contest.row_errors) series[0].points.push_back({.x = error});
    for (const double error : contest.rival_row_errors) series[1].points.push_back({.x = error});
    all += LogHistogram(series);
  }
  return all;
}

std::string Tables(const ReportContent& content) {
  std::string all;
  for (const SolverTableRows& table : content.tables) {
    all += absl::StrFormat("<h3>learned:%d, coefficients: %s</h3>\n%s", table.evaluations,
                           Escaped(table.coefficients), HeatMap(table.rows));
  }
  return all;
}

std::string SampleClouds(const ReportContent& content) {
  std::string all;
  for (const Samples& samples : content.samples) {
    all += absl::StrFormat("<figure>%s<figcaption>%s</figcaption></figure>\n",
                           CloudChart(samples.points, 4, kClassical), Escaped(samples.plan));
  }
  return all;
}

std::string Provenance(const ReportContent& content) {
  std::string all;
  for (const auto& [folder, entries] : content.provenance) {
    std::vector<Cells> rows;
    for (const auto& [key, value] : entries) rows.push_back({key, value});
    all += absl::StrFormat("<h3>%s</h3>\n%s", Escaped(folder), Table({"what", "value"}, rows));
  }
  return all;
}

}  // namespace

std::optional<double> RatioBar(ModelKind kind, int evaluations) {
  const std::span<const Bar> bars =
      kind == ModelKind::kClassifier ? std::span<const Bar>(kClassifierBars) : kFlowBars;
  const auto found = std::ranges::find(bars, evaluations, &Bar::evaluations);
  return found == bars.end() ? std::nullopt : std::optional(found->ratio);
}

std::string ReportPage(const ReportContent& content) {
  const std::vector<PlanCalibration> plans = AllPlans(content);
  const Calibration& measured = content.calibration;
  std::string page = absl::StrFormat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title>\n"
      "<style>body{font:15px sans-serif;max-width:1180px;margin:2em auto;padding:0 1em}"
      "svg{font-size:12px;margin:4px}table{border-collapse:collapse;font-size:13px}"
      "td,th{padding:2px 8px;border-bottom:1px solid #ddd;text-align:left}"
      "figure{display:inline-block;margin:6px}</style></head><body>\n<h1>%s, a %s</h1>\n",
      Escaped(content.name), Escaped(content.name), std::string(ModelKindName(content.kind)));
  page += Paragraph(
      absl::StrFormat("Calibrated on %d held-out rows against %s on %s. Base digest %s.",
                      measured.rows, measured.reference, measured.device, measured.base_digest));
  page += Section("Error against cost",
                  MacsFront(plans) + Front(plans, "microseconds a row, in batches",
                                           &PlanCalibration::seconds_per_row, 1e6));
  const std::string rows = absl::StrFormat(
      "Measured for this report on %d held-out rows: each learned plan and the most accurate "
      "classical plan of any method and K that takes no more MACs.",
      content.rows);
  page +=
      Section("The bar", Paragraph(DefaultVerdict(content, plans)) +
                             (content.contests.empty() ? Paragraph("No learned solver is served.")
                                                       : Paragraph(rows) + Bars(content)));
  page += Section("Errors of the rows, each learned plan beside its rival", Residuals(content));
  page += Section("Samples of the same noise", SampleClouds(content));
  if (!content.tables.empty()) {
    page += Section(
        "Tables: what x_0 and each slope weigh in the next state. Maps are shown by the "
        "mean of their diagonals, channels by their mean",
        Tables(content));
  }
  page += Section("All measured plans", PlanTable(content, plans));
  page += Section("How the generations were made", Provenance(content));
  return page + "</body></html>\n";
}

std::string FrontPicture(const ReportContent& content) {
  return absl::StrReplaceAll(MacsFront(AllPlans(content)),
                             {{"<svg ",
                               "<svg xmlns=\"http://www.w3.org/2000/svg\" style=\"font:12px "
                               "sans-serif;background:#fff\" "}});
}

}  // namespace hyperserve
