#include "training/measure/measure.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"

namespace hyperserve {
namespace {

template <class T>
double Sum(const std::vector<T>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// The place of each row's largest output.
std::vector<int64_t> Labels(const HostTensor& outputs) {
  const std::vector<double> values = AsDoubles(outputs.view());
  const int64_t rows = outputs.shape[0];
  const int64_t width = static_cast<int64_t>(values.size()) / rows;
  std::vector<int64_t> labels(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = values.begin() + row * width;
    labels[row] = std::max_element(first, first + width) - first;
  }
  return labels;
}

Batch MakeBatch(const Solve& solve, Entry entry, const TensorView& rows) {
  BatchSpec spec;
  spec.model = solve.model;
  spec.correction = solve.correction;
  if (solve.plan.fixed() != nullptr) {
    spec.plan = *solve.plan.fixed();
  } else {
    spec.plan = *solve.plan.adaptive();
  }
  spec.tier = solve.plan.tier;
  spec.entry = entry;
  spec.direction = solve.direction;
  spec.log_density = solve.log_density;
  spec.want_outputs = solve.model->spec().kind == ModelKind::kClassifier;
  return {.spec = std::move(spec), .segments = {{.rows = rows.shape[0], .data = rows}}};
}

// The engine sets one thread for itself, as where it serves; training beside it keeps its own.
struct ThreadsKept {
  const int threads = at::get_num_threads();
  ~ThreadsKept() { at::set_num_threads(threads); }
};

}  // namespace

absl::StatusOr<Solution> RunSolve(Engine& engine, const Solve& solve, const SolveInputs& inputs) {
  const ThreadsKept threads_kept;
  Solution solution;
  const int64_t rows = inputs.count();
  for (int64_t first = 0; first < rows; first += solve.batch) {
    const TensorView part = RowsOf(inputs.rows.view(), first, std::min(solve.batch, rows - first));
    const Batch batch = MakeBatch(solve, inputs.entry, part);
    const auto start = std::chrono::steady_clock::now();
    HS_ASSIGN_OR_RETURN(const BatchResult result, RunBatch(engine, batch));
    solution.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const RowStatus status : result.status) {
      if (status != RowStatus::kConverged) {
        return absl::FailedPreconditionError(absl::StrCat(
            PrintPlan(solve.plan), ": a row ended in ", std::string(RowStatusName(status))));
      }
    }
    AppendRows(result.state.view(), solution.state);
    AppendRows(result.outputs.view(), solution.outputs);
    AppendRows(result.log_density.view(), solution.log_density);
    solution.nfe += Sum(result.nfe) / rows;
    solution.correction_evaluations += Sum(result.correction_evaluations) / rows;
    solution.macs += Sum(result.macs) / rows;
  }
  return solution;
}

std::vector<double> RelativeErrors(const HostTensor& state, const HostTensor& reference) {
  const std::vector<double> values = AsDoubles(state.view()), truth = AsDoubles(reference.view());
  const size_t rows = state.shape[0];
  const size_t width = values.size() / rows;
  std::vector<double> errors(rows);
  for (size_t row = 0; row < rows; ++row) {
    double difference = 0, size = 0;
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      difference += (values[i] - truth[i]) * (values[i] - truth[i]);
      size += truth[i] * truth[i];
    }
    errors[row] = std::sqrt(difference / size);
  }
  return errors;
}

double Accuracy(const HostTensor& outputs, const std::vector<int64_t>& labels) {
  const std::vector<int64_t> found = Labels(outputs);
  int64_t same = 0;
  for (size_t row = 0; row < found.size(); ++row) same += found[row] == labels[row] ? 1 : 0;
  return static_cast<double>(same) / static_cast<double>(found.size());
}

double Agreement(const HostTensor& outputs, const HostTensor& reference) {
  return Accuracy(outputs, Labels(reference));
}

absl::StatusOr<Measurer> Measurer::Make(Engine& engine, Options options) {
  Measurer measurer(engine, std::move(options));
  Plan reference = measurer.options_.reference;
  reference.tier = Tier::kDouble;
  HS_ASSIGN_OR_RETURN(measurer.reference_, RunSolve(engine, measurer.SolveOf(reference, nullptr),
                                                    measurer.options_.inputs));
  return measurer;
}

Solve Measurer::SolveOf(const Plan& plan,
                        const std::shared_ptr<const Hypersolver>& correction) const {
  return {.model = options_.model,
          .correction = correction,
          .plan = plan,
          .direction = options_.direction,
          .batch = options_.batch};
}

absl::StatusOr<double> Measurer::MeanError(const Plan& plan,
                                           const std::shared_ptr<const Hypersolver>& correction) {
  HS_ASSIGN_OR_RETURN(const Solution solution,
                      RunSolve(*engine_, SolveOf(plan, correction), options_.inputs));
  const std::vector<double> errors = RelativeErrors(solution.state, reference_.state);
  return Sum(errors) / static_cast<double>(errors.size());
}

absl::StatusOr<PlanCalibration> Measurer::Measure(
    const Plan& plan, const std::shared_ptr<const Hypersolver>& correction) {
  const Solve solve = SolveOf(plan, correction);
  HS_ASSIGN_OR_RETURN(const Solution warm, RunSolve(*engine_, solve, options_.inputs));
  HS_ASSIGN_OR_RETURN(const Solution solution, RunSolve(*engine_, solve, options_.inputs));
  const std::vector<double> errors = RelativeErrors(solution.state, reference_.state);
  const double rows = static_cast<double>(errors.size());
  PlanCalibration measured;
  measured.plan = PrintPlan(plan);
  measured.error_mean = Sum(errors) / rows;
  measured.error_max = *std::max_element(errors.begin(), errors.end());
  if (!solution.outputs.shape.empty()) {
    measured.agreement = Agreement(solution.outputs, reference_.outputs);
  }
  measured.nfe = solution.nfe;
  measured.correction_evaluations = solution.correction_evaluations;
  measured.macs = solution.macs;
  measured.seconds_per_row = std::min(warm.seconds, solution.seconds) / rows;
  measured.batch = static_cast<int>(std::min<int64_t>(options_.batch, options_.inputs.count()));
  return measured;
}

void MarkWins(const std::vector<PlanCalibration>& classical,
              std::vector<PlanCalibration>& hypersolved) {
  for (PlanCalibration& plan : hypersolved) {
    plan.wins = std::none_of(classical.begin(), classical.end(), [&](const PlanCalibration& other) {
      return other.macs <= plan.macs && other.error_mean <= plan.error_mean;
    });
  }
}

std::string CheapestWithin(const std::vector<PlanCalibration>& classical, double error) {
  const PlanCalibration* best = nullptr;
  for (const PlanCalibration& plan : classical) {
    if (plan.error_mean <= error && (best == nullptr || plan.macs < best->macs)) best = &plan;
  }
  return best == nullptr ? std::string() : best->plan;
}

std::string CalibrationTable(ModelKind kind, const std::vector<PlanCalibration>& plans) {
  std::string table =
      absl::StrFormat("%-16s %11s %11s %7s %8s %6s %12s %10s  %s\n", "plan", "error mean",
                      "error max", "agree", "NFE", "g", "MACs", "us/row", "wins");
  for (const PlanCalibration& plan : plans) {
    // Flows have no labels to agree on.
    const std::string agreement =
        kind == ModelKind::kFlow ? "-" : absl::StrFormat("%.4f", plan.agreement);
    absl::StrAppendFormat(&table, "%-16s %11.3e %11.3e %7s %8.1f %6.0f %12.4g %10.2f  %s\n",
                          plan.plan, plan.error_mean, plan.error_max, agreement, plan.nfe,
                          plan.correction_evaluations, plan.macs, 1e6 * plan.seconds_per_row,
                          plan.correction_evaluations == 0 ? ""
                          : plan.wins                      ? "yes"
                                                           : "no");
  }
  return table;
}

}  // namespace hyperserve
