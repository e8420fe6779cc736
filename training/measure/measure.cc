#include "training/measure/measure.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/choose_plan.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "programs/progress.h"
#include "programs/stop.h"

namespace hyperserve {
namespace {

// The finest tolerance of a reference in float32; below it rounding decides.
constexpr double kSingleTolerance = 1e-6;
// The plan whose solves tell the pace.
constexpr MethodChoice kPaceMethod = {.method = Method::kRk4};

// How a solve gives the log-density that Sample returns beside its state.
LogDensity DensityOf(const Solve& solve) {
  if (solve.model->spec().field_package) return LogDensity::kNone;
  if (solve.model->spec().kind != ModelKind::kFlow || solve.plan.tier == Tier::kFast ||
      solve.model->state_elements() > kTangentsMax) {
    return LogDensity::kNone;
  }
  return solve.plan.hypersolved() ? LogDensity::kStepMap : LogDensity::kDivergence;
}

BatchSpec SpecOf(const Solve& solve, Entry entry) {
  return {.model = solve.model,
          .correction = solve.correction,
          .tier = solve.plan.tier,
          .entry = entry,
          .direction = solve.direction,
          .save_at = solve.model->spec().save_at,
          .want_outputs = solve.want_outputs || solve.model->spec().kind == ModelKind::kClassifier,
          .log_density = solve.log_density,
          .want_distance = solve.want_distance};
}

// The engine sets the number of threads to one, as it does when it serves. This restores the number
// for training.
struct ThreadsKept {
  const int threads = at::get_num_threads();
  ~ThreadsKept() { at::set_num_threads(threads); }
};

// Adds the time of the engine to `seconds`. Calls `on_rows` with the rows of each batch.
absl::StatusOr<Solution> TimedSolve(DeviceRuntime& runtime, const Solve& solve,
                                    const SolveInputs& inputs, double& seconds,
                                    const std::function<void(int64_t)>& on_rows = nullptr) {
  const ThreadsKept threads_kept;
  const auto run = [&](const BatchSpec& spec, const StepPlan& plan,
                       const Segment& segment) -> absl::StatusOr<BatchResult> {
    const auto start = std::chrono::steady_clock::now();
    absl::StatusOr<BatchResult> solved =
        SolveAlone(runtime, spec, plan, segment, [] { return StopRequested(); });
    if (StopRequested()) return Stopped();
    if (!solved.ok()) return solved.status();
    BatchResult result = *std::move(solved);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const RowStatus status : result.status) {
      if (status != RowStatus::kConverged) {
        return absl::FailedPreconditionError(
            absl::StrCat(PrintPlan(solve.plan), ": a row ended in ", Absl(RowStatusName(status))));
      }
    }
    if (on_rows) on_rows(segment.rows);
    return result;
  };
  return SolveRows(SpecOf(solve, inputs.entry), StepPlanOf(solve.plan), inputs.segment(),
                   solve.batch, run);
}

}  // namespace

absl::StatusOr<Solution> RunSolve(DeviceRuntime& runtime, const Solve& solve,
                                  const SolveInputs& inputs, double* seconds) {
  const std::string densities = solve.log_density == LogDensity::kNone ? "" : " with densities";
  Progress progress(PrintPlan(solve.plan) + densities, inputs.count(), "rows");
  double unasked = 0;
  return TimedSolve(runtime, solve, inputs, seconds == nullptr ? unasked : *seconds,
                    [&](int64_t rows) { progress.Advance(rows); });
}

Plan ReferenceOf(const Model& model, Plan plan) {
  plan.tier = model.spec().field_package ? Tier::kExact : Tier::kDouble;
  auto* const adaptive = std::get_if<AdaptivePlan>(&plan.choice);
  if (adaptive != nullptr && plan.tier == Tier::kExact) {
    adaptive->rtol = std::max(adaptive->rtol, kSingleTolerance);
    adaptive->atol = std::max(adaptive->atol, kSingleTolerance);
  }
  return plan;
}

absl::StatusOr<Measurer> Measurer::Make(DeviceRuntime& runtime, Options options) {
  Measurer measurer(runtime, std::move(options));
  const Plan reference = ReferenceOf(*measurer.options_.model, measurer.options_.reference);
  Solve solve = measurer.SolveOf(reference, nullptr);
  solve.log_density = DensityOf(solve);
  HS_ASSIGN_OR_RETURN(measurer.reference_, RunSolve(runtime, solve, measurer.options_.inputs,
                                                    &measurer.reference_seconds_));
  HS_RETURN_IF_ERROR(measurer.TakePace());
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

absl::StatusOr<Solution> Measurer::Quietly(const Solve& solve) const {
  double seconds = 0;
  return TimedSolve(*runtime_, solve, options_.inputs, seconds);
}

absl::StatusOr<double> Measurer::MeanError(const Plan& plan,
                                           const std::shared_ptr<const Hypersolver>& correction) {
  HS_ASSIGN_OR_RETURN(const Solution solution, Quietly(SolveOf(plan, correction)));
  return ErrorAgainst(reference_, solution).mean;
}

PlanCalibration CalibrationOf(const Plan& plan, const Solution& reference,
                              const Solution& solution) {
  const PlanError error = ErrorAgainst(reference, solution);
  PlanCalibration measured;
  measured.plan = plan;
  measured.error_mean = error.mean;
  measured.error_p99 = error.p99;
  measured.error_max = error.max;
  measured.agreement = error.agreement;
  measured.nfe = solution.nfe;
  measured.correction_evaluations = solution.correction_evaluations;
  measured.macs = solution.macs;
  return measured;
}

absl::StatusOr<PlanCalibration> Measurer::MeasureError(
    const Plan& plan, const std::shared_ptr<const Hypersolver>& correction) {
  Solve solve = SolveOf(plan, correction);
  HS_ASSIGN_OR_RETURN(const Solution solution, Quietly(solve));
  PlanCalibration measured = CalibrationOf(plan, reference_, solution);
  solve.log_density = DensityOf(solve);
  if (solve.log_density == LogDensity::kNone) return measured;
  HS_ASSIGN_OR_RETURN(const Solution dense, Quietly(solve));
  const std::span<const double> found = dense.log_density.as<double>();
  const std::span<const double> exact = reference_.log_density.as<double>();
  double sum = 0;
  for (size_t row = 0; row < found.size(); ++row) sum += std::abs(found[row] - exact[row]);
  measured.log_density_error = sum / static_cast<double>(found.size());
  return measured;
}

// Evaluations of f in float32 that cost as much as a row's solve.
double Measurer::Evaluations(const Plan& plan,
                             const std::shared_ptr<const Hypersolver>& correction) const {
  const double of_tier = plan.tier == Tier::kDouble ? pace_.in_double : 1;
  if (const FixedPlan* fixed = plan.fixed()) {
    const auto field = static_cast<double>(std::max<int64_t>(options_.model->field_macs(), 1));
    const auto macs = static_cast<double>(PlanMacs(*options_.model, correction.get(), *fixed));
    return of_tier * std::max(macs / field, 1.0);
  }
  const AdaptivePlan *adaptive = plan.adaptive(), *reference = options_.reference.adaptive();
  if (adaptive == nullptr || reference == nullptr) return of_tier;
  // Pairs of order five take more steps by the fifth root of the tolerance.
  return of_tier * reference_.nfe * std::pow(reference->rtol / adaptive->rtol, 0.2);
}

// Leaves the pace unknown where its plan does not converge, or is not solved on this device.
absl::Status Measurer::TakePace() {
  const FixedPlan plan{.method = kPaceMethod, .steps = 1};
  const int64_t largest = std::min(options_.batch, options_.inputs.count());
  Solve solve = SolveOf({.choice = plan, .tier = Tier::kExact}, nullptr);
  const auto one = MedianSeconds(solve, 1);
  const auto all = one.ok() ? MedianSeconds(solve, largest) : one;
  if (!all.ok()) return absl::IsCancelled(all.status()) ? all.status() : absl::OkStatus();
  Pace pace = Pace::Of(PlanEvaluations(plan), *one, largest, *all);
  solve.log_density = DensityOf(solve);
  if (solve.log_density != LogDensity::kNone) {
    const auto dense = MedianSeconds(solve, largest);
    if (!dense.ok()) return absl::IsCancelled(dense.status()) ? dense.status() : absl::OkStatus();
    pace.with_density = *dense / *all;
  }
  // The reference is in tier double, with densities where there are some.
  const double in_float =
      pace.with_density * pace.Solve(reference_.nfe, options_.inputs.count(), options_.batch);
  pace.in_double = reference_seconds_ / in_float;
  pace_ = pace;
  return absl::OkStatus();
}

double Measurer::SolveSeconds(const Plan& plan,
                              const std::shared_ptr<const Hypersolver>& correction,
                              int64_t rows) const {
  return pace_.Solve(Evaluations(plan, correction), rows, options_.batch);
}

double Measurer::ErrorSeconds(const Plan& plan,
                              const std::shared_ptr<const Hypersolver>& correction) const {
  const bool dense = DensityOf(SolveOf(plan, correction)) != LogDensity::kNone;
  return SolveSeconds(plan, correction, options_.inputs.count()) *
         (1 + (dense ? pace_.with_density : 0));
}

double Measurer::Seconds(const Plan& plan,
                         const std::shared_ptr<const Hypersolver>& correction) const {
  const int64_t largest = std::min(options_.batch, options_.inputs.count());
  return ErrorSeconds(plan, correction) + pace_.TimedRuns(Evaluations(plan, correction), largest);
}

absl::StatusOr<double> Measurer::MedianSeconds(const Solve& solve, int64_t rows) {
  const SolveInputs inputs = RowsOf(options_.inputs, 0, rows);
  double all = 0;
  HS_RETURN_IF_ERROR(TimedSolve(*runtime_, solve, inputs, all).status());  // warms up
  std::vector<double> runs;
  for (all = 0; runs.empty() || (runs.size() < kTimedRuns && all < kTimedSeconds);
       all += runs.back()) {
    HS_RETURN_IF_ERROR(TimedSolve(*runtime_, solve, inputs, runs.emplace_back()).status());
  }
  const auto middle = runs.begin() + static_cast<ptrdiff_t>(runs.size() / 2);
  std::nth_element(runs.begin(), middle, runs.end());
  return *middle;
}

absl::StatusOr<PlanCalibration> Measurer::Measure(
    const Plan& plan, const std::shared_ptr<const Hypersolver>& correction) {
  HS_ASSIGN_OR_RETURN(PlanCalibration measured, MeasureError(plan, correction));
  const Solve solve = SolveOf(plan, correction);
  const int64_t largest = std::min(options_.batch, options_.inputs.count());
  for (const int64_t rows : TimedSizes(largest)) {
    HS_ASSIGN_OR_RETURN(const double seconds, MedianSeconds(solve, rows));
    measured.times.push_back({.rows = static_cast<int>(rows), .seconds = seconds});
  }
  measured.batch = static_cast<int>(largest);
  measured.seconds_per_row = measured.times.back().seconds / static_cast<double>(largest);
  return measured;
}

void MarkWins(const std::vector<PlanCalibration>& classical,
              std::vector<PlanCalibration>& hypersolved) {
  for (PlanCalibration& plan : hypersolved) {
    const PlanCalibration* best = nullptr;  // classical, of at most its MACs
    for (const PlanCalibration& other : classical) {
      if (other.macs > plan.macs) continue;
      if (best == nullptr || other.error_mean < best->error_mean) best = &other;
    }
    const bool needless =
        std::any_of(hypersolved.begin(), hypersolved.end(), [&](const PlanCalibration& other) {
          return other.nfe < plan.nfe && other.error_mean <= plan.error_mean;
        });
    plan.wins = !needless && (best == nullptr || plan.error_mean < best->error_mean);
    plan.heavy_tail = best != nullptr && plan.error_p99 > best->error_p99;
  }
}

std::optional<Plan> CheapestWithin(const std::vector<PlanCalibration>& plans, double error,
                                   double agreement) {
  std::vector<PlanOption> options;
  for (const PlanCalibration& plan : plans) {
    if (plan.agreement >= agreement) options.push_back({.measured = &plan});
  }
  const auto best = ChoosePlan({.target_error = error}, options);
  return best.ok() ? std::optional<Plan>(best->measured->plan) : std::nullopt;
}

std::string CalibrationTable(ModelKind kind, const std::vector<PlanCalibration>& plans) {
  std::string table =
      absl::StrFormat("%-16s %10s %10s %10s %8s %7s %7s %4s %11s %9s  %s\n", "plan", "error mean",
                      "99 %", "max", "density", "agree", "NFE", "g", "MACs", "us/row", "wins");
  for (const PlanCalibration& plan : plans) {
    // Other kinds have no labels to agree on.
    const std::string agreement =
        kind == ModelKind::kClassifier ? absl::StrFormat("%.4f", plan.agreement) : "-";
    const std::string density =
        plan.log_density_error ? absl::StrFormat("%.1e", *plan.log_density_error) : "-";
    absl::StrAppendFormat(
        &table, "%-16s %10.3e %10.3e %10.3e %8s %7s %7.1f %4.0f %11.4g %9.2f  %s%s\n",
        PrintPlan(plan.plan), plan.error_mean, plan.error_p99, plan.error_max, density, agreement,
        plan.nfe, plan.correction_evaluations, plan.macs, 1e6 * plan.seconds_per_row,
        !plan.plan.hypersolved() ? ""
        : plan.wins              ? "yes"
                                 : "no",
        plan.heavy_tail ? ", heavy tail" : "");
  }
  return table;
}

}  // namespace hyperserve
