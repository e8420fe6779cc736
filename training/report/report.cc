#include "training/report/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/plan_error.h"
#include "core/io/file.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "training/measure/calibrate.h"
#include "training/measure/measure.h"
#include "training/measure/rivals.h"
#include "training/report/bench.h"

namespace hyperserve {
namespace {

absl::StatusOr<Calibration> CalibrationOf(const std::string& folder, const Model& model) {
  const std::string path = folder + "/calibration.json";
  HS_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kCalibrationBytesMax));
  auto calibration = ParseCalibration(json);
  if (!calibration.ok()) return Annotate(calibration.status(), path);
  if (calibration->base_digest == model.base_digest()) return calibration;
  return absl::FailedPreconditionError(
      absl::StrCat(path, " was measured on another base: run calibrate first"));
}

// The mean of a coefficient's numbers; of a map, of its diagonal.
double MeanOf(const double* numbers, int64_t count, Coefficients kind) {
  const auto width = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(count))));
  const int64_t stride = kind == Coefficients::kMap ? width + 1 : 1;
  double sum = 0;
  int64_t taken = 0;
  for (int64_t i = 0; i < count; i += stride, ++taken) sum += numbers[i];
  return sum / static_cast<double>(taken);
}

// One row of each coefficient.
absl::StatusOr<std::vector<double>> Means(const SafetensorsFile& tensors, const std::string& name,
                                          Coefficients kind) {
  HS_ASSIGN_OR_RETURN(const TensorView view, tensors.Find(name));
  const std::vector<double> numbers = AsDoubles(view);
  const int64_t rows = RowCount(view);
  const int64_t each = static_cast<int64_t>(numbers.size()) / std::max<int64_t>(rows, 1);
  std::vector<double> means;
  for (int64_t row = 0; row < rows; ++row) {
    means.push_back(MeanOf(numbers.data() + row * each, each, kind));
  }
  return means;
}

absl::StatusOr<Contest> Compete(const Bench& bench, const Served& learned, int evaluations,
                                Rivals& rivals) {
  const Plan plan{.choice = FixedPlan{.method = {.method = Method::kLearned},
                                      .steps = evaluations,
                                      .hypersolved = true}};
  HS_ASSIGN_OR_RETURN(const Solution solution, bench.Run(plan, learned.correction));
  HS_ASSIGN_OR_RETURN(const PlanCalibration rival,
                      rivals.BestWithin(static_cast<int64_t>(solution.macs)));
  HS_ASSIGN_OR_RETURN(const Solution other, bench.Run(rival.plan, nullptr));
  PlanError error = ErrorAgainst(bench.reference, solution);
  PlanError rival_error = ErrorAgainst(bench.reference, other);
  return Contest{.evaluations = evaluations,
                 .rival = PrintPlan(rival.plan),
                 .error = error.mean,
                 .rival_error = rival_error.mean,
                 .p99 = error.p99,
                 .rival_p99 = rival_error.p99,
                 .macs = solution.macs,
                 .row_errors = std::move(error.rows),
                 .rival_row_errors = std::move(rival_error.rows)};
}

// Samples of the reference, the default plan and the learned plan of fewest evaluations.
absl::Status DrawSamples(const Bench& bench, const std::vector<Served>& served,
                         ReportContent& content) {
  content.samples.push_back(SamplesOf(content.calibration.reference, bench.reference));
  std::vector<std::pair<Plan, std::shared_ptr<const Hypersolver>>> plans;
  const Plan chosen = DefaultPlanOf(content.calibration);
  if (!chosen.hypersolved() && (chosen.fixed() || chosen.adaptive())) plans.push_back({chosen, {}});
  for (const Served& one : served) {
    const HypersolverSpec& spec = one.correction->spec();
    if (spec.direction != bench.solve.direction) continue;
    for (const int steps : spec.steps) {
      const Plan plan{.choice =
                          FixedPlan{.method = spec.method, .steps = steps, .hypersolved = true}};
      const bool first = spec.learned() && steps == spec.steps.front();
      if (plan == chosen || first) plans.push_back({plan, one.correction});
    }
  }
  for (const auto& [plan, correction] : plans) {
    HS_ASSIGN_OR_RETURN(const Solution solution, bench.Run(plan, correction));
    content.samples.push_back(SamplesOf(PrintPlan(plan), solution));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SolverTableRows> TableRows(const TableSpec& table, const SafetensorsFile& tensors) {
  const std::string prefix = TablePrefix(table.evaluations);
  HS_ASSIGN_OR_RETURN(const std::vector<double> state,
                      Means(tensors, prefix + ".state", table.coefficients));
  HS_ASSIGN_OR_RETURN(const std::vector<double> slopes,
                      Means(tensors, prefix + ".slopes", table.coefficients));
  SolverTableRows result{.evaluations = table.evaluations,
                         .coefficients = std::string(CoefficientsName(table.coefficients)),
                         .rows = {}};
  result.rows.columns.emplace_back("x_0");
  for (int j = 0; j < table.evaluations; ++j) {
    result.rows.columns.push_back(absl::StrCat("k_", j));
  }
  auto next = slopes.begin();
  for (int i = 0; i < table.evaluations; ++i) {
    result.rows.names.push_back(absl::StrCat("x_", i + 1));
    std::vector<double>& row = result.rows.values.emplace_back(
        table.evaluations + 1, std::numeric_limits<double>::quiet_NaN());
    row[0] = state[i];
    for (int j = 0; j <= i; ++j) row[j + 1] = *next++;
  }
  return result;
}

absl::StatusOr<ReportContent> GatherReport(const Recipe& recipe, DeviceRuntime& runtime,
                                           const std::string& model_folder,
                                           const std::string& data_folder, FieldCode code) {
  if (!recipe.has_calibrate()) return absl::InvalidArgumentError("the recipe holds no calibrate");
  Recipe batch = recipe;
  batch.mutable_calibrate()->set_rows(
      std::min(recipe.calibrate().rows(), recipe.calibrate().batch()));
  HS_ASSIGN_OR_RETURN(const auto model, Model::Load(model_folder, code));
  ReportContent content{
      .name = recipe.name(), .kind = model->spec().kind, .rows = batch.calibrate().rows()};
  HS_ASSIGN_OR_RETURN(content.calibration, CalibrationOf(model_folder, *model));
  HS_ASSIGN_OR_RETURN(const std::vector<Served> served, ServedGenerations(model_folder, *model));
  HS_ASSIGN_OR_RETURN(const Bench bench, MakeBench(batch, runtime, model, data_folder));
  HS_ASSIGN_OR_RETURN(Measurer measurer,
                      HeldOutMeasurer(batch, runtime, model, bench.solve.direction, data_folder));
  Rivals rivals(*model, measurer);
  for (const Served& one : served) {
    const HypersolverSpec& spec = one.correction->spec();
    const auto measured = CalibrationOf(one.folder, *model);
    if (measured.ok()) {
      content.corrected.insert(content.corrected.end(), measured->plans.begin(),
                               measured->plans.end());
    } else if (!absl::IsNotFound(measured.status())) {  // the file is optional
      return measured.status();
    }
    content.provenance[one.label] = spec.provenance;
    if (!spec.learned()) continue;
    HS_ASSIGN_OR_RETURN(const SafetensorsFile tensors,
                        SafetensorsFile::Open(one.folder + "/weights.safetensors"));
    for (const TableSpec& table : spec.tables) {
      if (table.evaluations > 0) {
        HS_ASSIGN_OR_RETURN(content.tables.emplace_back(), TableRows(table, tensors));
      }
      if (spec.direction != bench.solve.direction) continue;
      HS_ASSIGN_OR_RETURN(content.contests.emplace_back(),
                          Compete(bench, one, table.evaluations, rivals));
    }
  }
  if (model->spec().kind == ModelKind::kFlow && model->state_elements() == 2) {
    HS_RETURN_IF_ERROR(DrawSamples(bench, served, content));
  }
  return content;
}

}  // namespace hyperserve
