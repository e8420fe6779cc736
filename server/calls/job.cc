#include "server/calls/job.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "core/engine/batch_spec.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

// For a model without a measured adaptive plan: between easy (30) and stiff (200) models.
constexpr double kUnmeasuredNfe = 100;
// Time of an evaluation of f in double over that in float32: 5 to 6 were measured on a CPU.
constexpr double kDoubleSlowdown = 5;

double CalibratedNfe(const AdaptivePlan& plan, const Calibration& calibration) {
  if (const auto* measured = calibration.Find({.choice = plan})) return measured->nfe;
  double largest = 0;
  for (const PlanCalibration& measured : calibration.plans) {
    if (measured.plan.adaptive() != nullptr) largest = std::max(largest, measured.nfe);
  }
  return largest > 0 ? largest : kUnmeasuredNfe;
}

// Interpolation combines some eight states, and then the state is copied twice.
constexpr double kSavedNumberMacs = 10;

// Of an adaptive plan.
double PredictEvaluations(const Job& job, int stages) {
  const std::array<double, 2>& own = job.served->model->spec().span;
  const std::array<double, 2>& span = job.task.span;
  const double nfe = CalibratedNfe(*job.plan.plan.adaptive(), job.served->calibration) *
                     (span[1] - span[0]) / (own[1] - own[0]);
  return std::clamp(nfe, 1.0, static_cast<double>(job.plan.max_steps) * stages);
}

// The states of save_at: the slope at the end of each step that holds one, and the interpolation.
struct SavedCost {
  double slopes = 0;  // evaluations of f
  double macs = 0;
};
SavedCost PredictSaved(const Job& job, double steps) {
  const auto depths = static_cast<double>(job.task.save_at.size());
  return {
      .slopes = std::min(depths, steps),
      .macs = depths * kSavedNumberMacs * static_cast<double>(job.served->model->state_elements())};
}

// Passes of a net in place of one. kVjp goes to the end, back, and through a long plan twice.
int64_t PassesOf(Derivative derivative) {
  switch (derivative) {
    case Derivative::kNone:
      return 1;
    case Derivative::kJvp:
      return 2;
    case Derivative::kVjp:
      return 3;
  }
  return 1;
}

// A density that is computed in double, whatever the state is.
bool IsStepMapInDouble(const Job& job) {
  const Plan& plan = job.plan.plan;
  return job.task.log_density && plan.hypersolved() && plan.tier == Tier::kExact;
}

// Rows whose evaluation of f stays within batch_macs_max, a power of two. The way to the end and
// the way back of a kVjp are calls by themselves: one pass at a time.
int64_t BatchRows(const Job& job, double evaluation_macs, const CallLimits& limits) {
  const bool apart = job.task.derivative == Derivative::kVjp;
  const double together =
      evaluation_macs / static_cast<double>(apart ? PassesOf(Derivative::kVjp) : 1);
  const double rows = std::clamp(limits.batch_macs_max / std::max(together, 1.0), 1.0, 1e9);
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
}

}  // namespace

RowCost PredictRow(const Job& job) {
  const Model& model = *job.served->model;
  const FixedPlan* fixed = job.plan.plan.fixed();
  const Hypersolver* correction =
      job.plan.generation != nullptr ? job.plan.generation->correction.get() : nullptr;
  // The tangent of each dimension is one more pass of the net, and so is a state that is solved
  // apart (core/engine/paired_run.h).
  const bool apart = IsStepMapInDouble(job) && job.task.want_state;
  const int64_t passes =
      ((job.task.log_density ? 1 + (job.task.probes > 0 ? job.task.probes : model.state_elements())
                             : 1) +
       (apart ? 1 : 0)) *
      PassesOf(job.task.derivative);
  double evaluations = 0, evaluation_macs = 0;
  if (fixed != nullptr) {
    // A plan without evaluations of f costs what its readout costs, as one evaluation.
    evaluations = std::max(PlanEvaluations(*fixed), 1);
    evaluation_macs = static_cast<double>(PlanMacs(model, correction, *fixed)) / evaluations;
  } else {
    const int stages = StepEvaluations(job.plan.plan.adaptive()->method);
    evaluations = PredictEvaluations(job, stages);
    evaluation_macs = static_cast<double>(model.field_macs());
  }
  const int of_step = fixed != nullptr ? std::max(StepEvaluations(fixed->method), 1)
                                       : StepEvaluations(job.plan.plan.adaptive()->method);
  // Each knot of the condition cuts a step.
  evaluations += static_cast<double>(job.task.knots.depths.size()) * of_step;
  const SavedCost saved = PredictSaved(job, evaluations / of_step);
  return {
      .evaluations = evaluations + saved.slopes,
      .evaluation_macs = static_cast<double>(passes) * job.task.slope_evaluations * evaluation_macs,
      .maps_macs = saved.macs + static_cast<double>(
                                    PassesOf(job.task.derivative) *
                                        (job.task.entry == Entry::kInput ? model.stem_macs() : 0) +
                                    (job.task.want_outputs ? model.head_macs() : 0))};
}

absl::StatusOr<JobSize> SizeOf(const Job& job, const CallLimits& limits) {
  const size_t inputs = job.data.bytes.size() + job.condition.bytes.size() +
                        job.guidance.bytes.size() + job.vector.bytes.size() +
                        job.condition_vector.bytes.size();
  JobSize size{.row = PredictRow(job)};
  const double row_macs = size.row.macs();
  // The time of a batch is bounded, so a MAC in double counts as several. `macs` below stays exact.
  if (job.plan.plan.tier == Tier::kDouble || IsStepMapInDouble(job)) {
    size.row.evaluation_macs *= kDoubleSlowdown;
  }
  size.batch_rows_max = BatchRows(job, size.row.evaluation_macs, limits);
  const int64_t under_way = std::min(job.rows, size.batch_rows_max * limits.live_runs_max);
  size.bytes =
      static_cast<int64_t>(inputs) + job.rows * job.row_bytes + under_way * job.kept_row_bytes;
  if (size.bytes > limits.request_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the request needs %d bytes of inputs and outputs (%d rows, %d each), more "
                        "than queue_bytes_max = %d; send fewer rows in one request",
                        size.bytes, job.rows, size.bytes / job.rows, limits.request_bytes_max));
  }
  const auto rows = static_cast<double>(job.rows);
  if (rows * row_macs > limits.request_macs_max) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the request needs about %.2g MACs (%d rows, %.2g each), more than "
                        "pending_macs_max = %.2g; send fewer rows in one request, or ask for fewer "
                        "steps or a looser tolerance",
                        rows * row_macs, job.rows, row_macs, limits.request_macs_max));
  }
  size.macs = static_cast<int64_t>(rows * row_macs);
  return size;
}

}  // namespace hyperserve
