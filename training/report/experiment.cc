#include "training/report/experiment.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/status.h"
#include "core/engine/plan_error.h"
#include "core/io/tensor.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "training/data/dataset.h"
#include "training/data/image_files.h"
#include "training/measure/calibrate.h"
#include "training/measure/measure.h"
#include "training/report/bench.h"
#include "training/report/chart.h"

namespace hyperserve {
namespace {

constexpr double kCloudLimit = 4;
// What is lost is drawn as at least this many points: the axis is logarithmic.
constexpr double kLeastLoss = 0.01;

struct PlanToMeasure {
  Plan plan;
  std::shared_ptr<const Hypersolver> correction;  // null: classical
};

bool IsAlpha(const Plan& plan) {
  return plan.fixed() != nullptr && plan.fixed()->method.method == Method::kAlpha;
}

bool OfAlphaFamily(const MethodChoice& method) {
  if (RunsFromTable(method.method)) return false;
  const Tableau tableau = TableauFor(method);
  return tableau.order == 2 && tableau.solution_stages() == 2;
}

Plan Hypersolved(const MethodChoice& method, int steps) {
  return {.choice = FixedPlan{.method = method, .steps = steps, .hypersolved = true}};
}

// The plans that experiment.h names, each once.
absl::StatusOr<std::vector<PlanToMeasure>> PlansOf(const Recipe& recipe, const Model& model,
                                                   const std::vector<Served>& served) {
  std::vector<PlanToMeasure> plans;
  for (const std::string& text : recipe.calibrate().plans()) {
    HS_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(text));
    plans.push_back({.plan = plan, .correction = nullptr});
  }
  const std::vector<PlanToMeasure> classical = plans;
  const auto wanted = [&](const FixedPlan& plan) {
    return model.spec().kind != ModelKind::kFlow ||
           std::ranges::any_of(classical, [&](const PlanToMeasure& one) {
             return one.plan.fixed() && PlanEvaluations(*one.plan.fixed()) == PlanEvaluations(plan);
           });
  };
  for (const Served& one : served) {
    const HypersolverSpec& spec = one.correction->spec();
    if (spec.direction != ServedDirection(model.spec())) continue;
    for (const int steps : spec.steps) {
      const Plan plan = Hypersolved(spec.method, steps);
      if (wanted(*plan.fixed())) plans.push_back({plan, one.correction});
    }
    if (!OfAlphaFamily(spec.method)) continue;
    for (const PlanToMeasure& other : classical) {
      if (!IsAlpha(other.plan) || other.plan.fixed()->method == spec.method) continue;
      plans.push_back(
          {Hypersolved(other.plan.fixed()->method, other.plan.fixed()->steps), one.correction});
    }
  }
  return plans;
}

// "euler", "hyper_euler", "dopri5": a line of a chart.
std::string FamilyOf(const Plan& plan) {
  const MethodChoice& method =
      plan.fixed() != nullptr ? plan.fixed()->method : plan.adaptive()->method;
  const bool corrected = plan.hypersolved() && method.method != Method::kLearned;
  return absl::StrCat(corrected ? "hyper_" : "", PrintMethod(method));
}

// Learned and hypersolved plans stand out.
std::string ColourOf(const std::string& family, size_t index) {
  static constexpr std::array<const char*, 6> kPalette = {"#566573", "#2471a3", "#5dade2",
                                                          "#148f77", "#7d3c98", "#aab7b8"};
  if (family == "learned") return "#c0392b";
  return family.starts_with("hyper_") ? "#d68910" : kPalette[index % kPalette.size()];
}

// Adds a point to the line of this name, after the last one where it is new.
void AddPoint(const std::string& name, ChartPoint point, std::vector<ChartSeries>& all) {
  auto found = std::ranges::find(all, name, &ChartSeries::name);
  if (found == all.end()) {
    all.push_back({.name = name, .colour = ColourOf(name, all.size()), .points = {}});
    found = std::prev(all.end());
    found->joined = true;
  }
  found->points.push_back(std::move(point));
}

using Number = double (*)(const Experiment&, const ExperimentPlan&);

// The points of a family in the order of their cost.
std::vector<ChartSeries> Families(const Experiment& experiment, Number x, Number y) {
  std::vector<ChartSeries> all;
  for (const ExperimentPlan& one : experiment.plans) {
    AddPoint(FamilyOf(one.measured.plan), {.x = x(experiment, one), .y = y(experiment, one)}, all);
  }
  for (ChartSeries& one : all) std::ranges::sort(one.points, {}, &ChartPoint::x);
  return all;
}

double Error(const Experiment&, const ExperimentPlan& one) { return one.measured.error_mean; }
double Loss(const Experiment& all, const ExperimentPlan& one) {
  return std::max(100 * (all.accuracy - one.accuracy), kLeastLoss);
}

std::string Placed(const std::string& svg, double x, double y) {
  return absl::StrReplaceAll(svg,
                             {{"<svg ", absl::StrFormat("<svg x=\"%.0f\" y=\"%.0f\" ", x, y)}});
}

std::string File(double width, double height, const std::string& content) {
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "style=\"font:12px sans-serif;background:#fff\">\n%s</svg>\n",
      width, height, content);
}

// The cheapest hypersolved plan and the classical one of its method and K.
std::vector<std::string> ShownPlans(const Experiment& experiment) {
  const PlanCalibration* least = nullptr;
  for (const ExperimentPlan& one : experiment.plans) {
    if (!one.measured.plan.hypersolved()) continue;
    if (least == nullptr || one.measured.macs < least->macs) least = &one.measured;
  }
  if (least == nullptr) return {};
  Plan base = least->plan;
  std::get<FixedPlan>(base.choice).hypersolved = false;
  return {PrintPlan(base), PrintPlan(least->plan)};
}

// A chart for each number of the first row, at most three, below the fronts.
std::string Tracks(const Experiment& experiment) {
  if (experiment.paths.empty()) return "";
  std::vector<std::string> shown = ShownPlans(experiment);
  const auto is_plan = [&](const std::string& plan) {
    return std::ranges::any_of(experiment.plans, [&](const ExperimentPlan& one) {
      return PrintPlan(one.measured.plan) == plan;
    });
  };
  static constexpr std::array<const char*, 4> kColours = {"#222222", "#2471a3", "#aab7b8",
                                                          "#d68910"};
  const size_t numbers = std::min<size_t>(experiment.paths.front().states.front().size(), 3);
  std::string content;
  for (size_t number = 0; number < numbers; ++number) {
    std::vector<ChartSeries> lines;
    for (const Path& path : experiment.paths) {
      if (is_plan(path.plan) && std::ranges::find(shown, path.plan) == shown.end()) continue;
      ChartSeries& line = lines.emplace_back(
          ChartSeries{.name = path.plan, .colour = kColours[lines.size() % 4], .points = {}});
      for (size_t i = 0; i < path.depths.size(); ++i) {
        line.points.push_back({.x = path.depths[i], .y = path.states[i][number]});
      }
    }
    content += Placed(LineChart("depth", absl::StrFormat("z%d of the first row", number), lines),
                      560 * static_cast<double>(number), 340);
  }
  return content;
}

std::string Fronts(const Experiment& experiment) {
  struct Cost {
    const char* label;
    Number number;
  };
  static constexpr std::array<Cost, 3> kCosts = {{
      {"NFE", [](const Experiment&, const ExperimentPlan& one) { return one.measured.nfe; }},
      {"multiply-accumulates a row, f and g",
       [](const Experiment&, const ExperimentPlan& one) { return one.measured.macs; }},
      {"microseconds a row, in batches",
       [](const Experiment&, const ExperimentPlan& one) {
         return 1e6 * one.measured.seconds_per_row;
       }},
  }};
  const bool classifier = experiment.kind == ModelKind::kClassifier;
  std::string content;
  double x = 0;
  for (const Cost& cost : kCosts) {
    content += Placed(
        LogChart(cost.label, "mean relative error", Families(experiment, cost.number, Error)), x,
        0);
    if (classifier) {
      content += Placed(
          LogChart(cost.label, "accuracy lost, points", Families(experiment, cost.number, Loss)), x,
          340);
    }
    x += 560;
  }
  if (!classifier) content += Tracks(experiment);
  return File(x, classifier || !experiment.paths.empty() ? 680 : 340, content);
}

// One line for each K, without and with g.
std::string OverAlpha(const Experiment& experiment) {
  std::vector<ChartSeries> all;
  for (const ExperimentPlan& one : experiment.plans) {
    const Plan& plan = one.measured.plan;
    if (!IsAlpha(plan)) continue;
    const std::string name =
        absl::StrFormat("%salpha(x):%d", plan.hypersolved() ? "hyper_" : "", plan.fixed()->steps);
    AddPoint(name, {.x = plan.fixed()->method.alpha, .y = one.measured.error_mean}, all);
  }
  return File(560, 340, LogChart("alpha", "mean relative error", all));
}

std::string Clouds(const Experiment& experiment) {
  std::string content;
  double x = 0;
  for (const Samples& samples : experiment.samples) {
    content += Placed(CloudChart(samples.points, kCloudLimit, "#34495e"), x, 24);
    content += absl::StrFormat("<text x=\"%.0f\" y=\"16\" text-anchor=\"middle\">%s</text>\n",
                               x + 150, Escaped(samples.plan));
    x += 310;
  }
  return File(x, 324, content);
}

// The labels of the bench's rows, which are the first test images.
absl::StatusOr<std::vector<int64_t>> LabelsOfRows(const Recipe& recipe, const Bench& bench,
                                                  const Model& model, const std::string& data) {
  HS_ASSIGN_OR_RETURN(LabelledImages test, LoadLabelled(recipe, model.spec().input, model.outputs(),
                                                        ImagePart::kTest, data));
  test.labels.resize(bench.rows.count());
  return std::move(test.labels);
}

Path PathOf(const std::string& plan, const std::vector<double>& depths, const HostTensor& states) {
  Path path{.plan = plan, .depths = depths, .states = {}};
  const std::vector<double> all = AsDoubles(states.view());
  const size_t width = all.size() / static_cast<size_t>(states.shape[0]) / depths.size();
  for (size_t i = 0; i < depths.size(); ++i) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * width);
    path.states.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(width));
  }
  return path;
}

// The mean of |saved - answer| / |answer| over the rows; 0: there are no answers.
double OffAnswer(const Solution& solution, const HostTensor& answer) {
  if (answer.shape.empty()) return 0;
  Solution wanted;
  wanted.saved = HostTensor::CopyOf(answer.view());
  return ErrorAgainst(wanted, solution).mean;
}

// Error and cost of all rows, times of a batch.
absl::StatusOr<PlanCalibration> MeasureOn(const Bench& bench, Measurer& one_batch,
                                          const PlanToMeasure& plan, const Solution& solution) {
  HS_ASSIGN_OR_RETURN(PlanCalibration timed, one_batch.Measure(plan.plan, plan.correction));
  PlanCalibration measured = CalibrationOf(plan.plan, bench.reference, solution);
  measured.batch = timed.batch;
  measured.seconds_per_row = timed.seconds_per_row;
  measured.times = std::move(timed.times);
  return measured;
}

}  // namespace

absl::StatusOr<Experiment> RunExperiment(const Recipe& recipe, DeviceRuntime& runtime,
                                         const std::string& model_folder,
                                         const std::string& data_folder, FieldCode code) {
  if (!recipe.has_calibrate()) return absl::InvalidArgumentError("the recipe holds no calibrate");
  HS_ASSIGN_OR_RETURN(const auto model, Model::Load(model_folder, code));
  HS_ASSIGN_OR_RETURN(const std::vector<Served> served, ServedGenerations(model_folder, *model));
  HS_ASSIGN_OR_RETURN(const auto plans, PlansOf(recipe, *model, served));
  HS_ASSIGN_OR_RETURN(const Bench bench, MakeBench(recipe, runtime, model, data_folder));
  Recipe one_batch = recipe;
  one_batch.mutable_calibrate()->set_rows(
      std::min(recipe.calibrate().rows(), recipe.calibrate().batch()));
  HS_ASSIGN_OR_RETURN(Measurer measurer, HeldOutMeasurer(one_batch, runtime, model,
                                                         bench.solve.direction, data_folder));
  Calibration made;
  FillCalibration(recipe, *model, runtime, made);
  Experiment experiment{
      .name = recipe.name(),
      .kind = model->spec().kind,
      .remark = absl::StrFormat("%s, %d held-out rows, reference %s, %s", recipe.name(), made.rows,
                                made.reference, made.device)};
  const bool classifier = experiment.kind == ModelKind::kClassifier;
  const bool trajectory = experiment.kind == ModelKind::kTrajectory;
  const std::vector<double>& depths = model->spec().save_at;
  std::vector<int64_t> labels;
  if (classifier) {
    HS_ASSIGN_OR_RETURN(labels, LabelsOfRows(recipe, bench, *model, data_folder));
    experiment.accuracy = ShareOfEqual(LabelsOf(bench.reference.outputs), labels);
  } else if (trajectory) {
    const HostTensor& answer = bench.rows.answer;
    if (!answer.shape.empty()) experiment.paths.push_back(PathOf("answer", depths, answer));
    experiment.paths.push_back(PathOf(made.reference, depths, bench.reference.saved));
    experiment.off = OffAnswer(bench.reference, answer);
  } else if (experiment.kind == ModelKind::kFlow) {
    experiment.samples.push_back(SamplesOf(made.reference, bench.reference));
  }
  for (const PlanToMeasure& plan : plans) {
    HS_ASSIGN_OR_RETURN(const Solution solution, bench.Run(plan.plan, plan.correction));
    HS_ASSIGN_OR_RETURN(const PlanCalibration one, MeasureOn(bench, measurer, plan, solution));
    experiment.plans.push_back({.measured = one});
    if (classifier) {
      experiment.plans.back().accuracy = ShareOfEqual(LabelsOf(solution.outputs), labels);
    } else if (trajectory) {
      experiment.paths.push_back(PathOf(PrintPlan(plan.plan), depths, solution.saved));
      experiment.plans.back().off = OffAnswer(solution, bench.rows.answer);
    } else if (experiment.kind == ModelKind::kFlow) {
      experiment.samples.push_back(SamplesOf(PrintPlan(plan.plan), solution));
    }
  }
  return experiment;
}

std::string ExperimentTable(const Experiment& experiment) {
  const bool tracks = experiment.off > 0;
  const bool classifier = experiment.kind == ModelKind::kClassifier;
  const auto percent = [&](double share) {
    return classifier ? absl::StrFormat("%.2f", 100 * share) : "";
  };
  std::string table = absl::StrFormat(
      "# %s\nplan,error mean,error 99 %%,accuracy %%,labels of the reference %%,NFE,g,MACs,us a "
      "row%s\n",
      experiment.remark, tracks ? ",off the answer" : "");
  if (classifier) {
    absl::StrAppendFormat(&table, "reference,0,0,%s,100.00,,,,\n", percent(experiment.accuracy));
  }
  if (tracks) absl::StrAppendFormat(&table, "reference,0,0,,,,,,,%.4g\n", experiment.off);
  for (const auto& [one, accuracy, off] : experiment.plans) {
    absl::StrAppendFormat(&table, "%s,%.4g,%.4g,%s,%s,%.4g,%.4g,%.5g,%.4g%s\n", PrintPlan(one.plan),
                          one.error_mean, one.error_p99, percent(accuracy), percent(one.agreement),
                          one.nfe, one.correction_evaluations, one.macs, 1e6 * one.seconds_per_row,
                          tracks ? absl::StrFormat(",%.4g", off) : "");
  }
  return table;
}

std::string ExperimentPicture(const Experiment& experiment) {
  if (experiment.kind == ModelKind::kFlow) return Clouds(experiment);
  const bool alphas = std::ranges::any_of(
      experiment.plans, [](const ExperimentPlan& one) { return IsAlpha(one.measured.plan); });
  return alphas ? OverAlpha(experiment) : Fronts(experiment);
}

}  // namespace hyperserve
