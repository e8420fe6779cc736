#include "training/measure/measure.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"

namespace hyperserve {
namespace {

BatchSpec SpecOf(const Solve& solve, Entry entry) {
  return {.model = solve.model,
          .correction = solve.correction,
          .tier = solve.plan.tier,
          .entry = entry,
          .direction = solve.direction,
          .want_outputs = solve.model->spec().kind == ModelKind::kClassifier,
          .log_density = solve.log_density};
}

// The engine sets the number of threads to one, as it does when it serves. This restores the number
// for training.
struct ThreadsKept {
  const int threads = at::get_num_threads();
  ~ThreadsKept() { at::set_num_threads(threads); }
};

// Adds the time of the engine to `seconds`.
absl::StatusOr<Solution> TimedSolve(DeviceRuntime& runtime, const Solve& solve,
                                    const SolveInputs& inputs, double& seconds) {
  const ThreadsKept threads_kept;
  const auto run = [&](const BatchSpec& spec, const StepPlan& plan,
                       const Segment& segment) -> absl::StatusOr<BatchResult> {
    const auto start = std::chrono::steady_clock::now();
    HS_ASSIGN_OR_RETURN(BatchResult result, SolveAlone(runtime, spec, plan, segment));
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const RowStatus status : result.status) {
      if (status != RowStatus::kConverged) {
        return absl::FailedPreconditionError(
            absl::StrCat(PrintPlan(solve.plan), ": a row ended in ", Absl(RowStatusName(status))));
      }
    }
    return result;
  };
  return SolveRows(SpecOf(solve, inputs.entry), StepPlanOf(solve.plan), inputs.rows.view(),
                   solve.batch, run);
}

}  // namespace

absl::StatusOr<Solution> RunSolve(DeviceRuntime& runtime, const Solve& solve,
                                  const SolveInputs& inputs) {
  double seconds = 0;
  return TimedSolve(runtime, solve, inputs, seconds);
}

absl::StatusOr<Measurer> Measurer::Make(DeviceRuntime& runtime, Options options) {
  Measurer measurer(runtime, std::move(options));
  Plan reference = measurer.options_.reference;
  reference.tier = Tier::kDouble;
  HS_ASSIGN_OR_RETURN(measurer.reference_, RunSolve(runtime, measurer.SolveOf(reference, nullptr),
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
                      RunSolve(*runtime_, SolveOf(plan, correction), options_.inputs));
  return ErrorAgainst(reference_, solution).mean;
}

absl::StatusOr<PlanCalibration> Measurer::Measure(
    const Plan& plan, const std::shared_ptr<const Hypersolver>& correction) {
  const Solve solve = SolveOf(plan, correction);
  double first_seconds = 0, second_seconds = 0;
  HS_RETURN_IF_ERROR(TimedSolve(*runtime_, solve, options_.inputs, first_seconds).status());
  HS_ASSIGN_OR_RETURN(const Solution solution,
                      TimedSolve(*runtime_, solve, options_.inputs, second_seconds));
  const PlanError error = ErrorAgainst(reference_, solution);
  PlanCalibration measured;
  measured.plan = plan;
  measured.error_mean = error.mean;
  measured.error_max = error.max;
  measured.agreement = error.agreement;
  measured.nfe = solution.nfe;
  measured.correction_evaluations = solution.correction_evaluations;
  measured.macs = solution.macs;
  measured.seconds_per_row =
      std::min(first_seconds, second_seconds) / static_cast<double>(options_.inputs.count());
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

std::optional<Plan> CheapestWithin(const std::vector<PlanCalibration>& classical, double error) {
  const PlanCalibration* best = nullptr;
  for (const PlanCalibration& plan : classical) {
    if (plan.error_mean <= error && (best == nullptr || plan.macs < best->macs)) best = &plan;
  }
  return best == nullptr ? std::nullopt : std::optional<Plan>(best->plan);
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
                          PrintPlan(plan.plan), plan.error_mean, plan.error_max, agreement,
                          plan.nfe, plan.correction_evaluations, plan.macs,
                          1e6 * plan.seconds_per_row,
                          !plan.plan.hypersolved() ? ""
                          : plan.wins              ? "yes"
                                                   : "no");
  }
  return table;
}

}  // namespace hyperserve
