#include "server/rpc/predict.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "core/model/net/cost.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

// A model of which no adaptive plan was measured: between easy (30) and stiff (200) ones.
constexpr double kUnmeasuredNfe = 100;
// Of an evaluation of f in double against one in float32: 5 to 6 were measured on a CPU.
constexpr double kDoubleSlowdown = 5;

double CalibratedNfe(const AdaptivePlan& plan, const Calibration& calibration) {
  if (const auto* measured = calibration.Find({.choice = plan})) return measured->nfe;
  double largest = 0;
  for (const PlanCalibration& measured : calibration.plans) {
    if (measured.plan.adaptive() != nullptr) largest = std::max(largest, measured.nfe);
  }
  return largest > 0 ? largest : kUnmeasuredNfe;
}

double PredictSolveMacs(const BatchSpec& spec, const Calibration& calibration) {
  if (const auto* fixed = std::get_if<FixedPlan>(&spec.plan)) {
    return static_cast<double>(fixed->steps) *
           static_cast<double>(StepMacs(*spec.model, spec.correction.get(), fixed->method));
  }
  const auto& adaptive = std::get<AdaptivePlan>(spec.plan);
  const std::array<double, 2>& own = spec.model->spec().span;
  const std::array<double, 2>& span = spec.span.value_or(own);
  const double nfe = CalibratedNfe(adaptive, calibration) * (span[1] - span[0]) / (own[1] - own[0]);
  const double most = static_cast<double>(spec.max_steps) *
                      static_cast<double>(StepMacs(*spec.model, nullptr, adaptive.method));
  return std::min(nfe * static_cast<double>(spec.model->field_macs()), most);
}

}  // namespace

double PredictRowMacs(const BatchSpec& spec, const Calibration& calibration) {
  const int64_t maps = (spec.entry == Entry::kInput ? spec.model->stem_macs() : 0) +
                       (spec.want_outputs ? spec.model->head_macs() : 0);
  // Each dimension's tangent is a pass beside the value's.
  const int64_t passes =
      spec.log_density == LogDensity::kNone ? 1 : 1 + spec.model->state_elements();
  return static_cast<double>(maps) +
         static_cast<double>(passes) * PredictSolveMacs(spec, calibration);
}

absl::Status BoundWork(const Calibration& calibration, const CallLimits& limits, Work& work) {
  if (work.bytes > limits.request_bytes_max) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the request needs %d bytes of inputs and outputs (%d rows, with the states "
        "of a classifier), more than queue_bytes_max = %d; send fewer rows in one "
        "request",
        work.bytes, work.segment.rows, limits.request_bytes_max));
  }
  const double row_macs = PredictRowMacs(work.spec, calibration);
  const auto rows = static_cast<double>(work.segment.rows);
  if (rows * row_macs > limits.request_macs_max) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the request needs about %.2g MACs (%d rows, %.2g each), more than "
                        "pending_macs_max = %.2g; send fewer rows in one request, or ask for fewer "
                        "steps or a looser tolerance",
                        rows * row_macs, work.segment.rows, row_macs, limits.request_macs_max));
  }
  work.macs = static_cast<int64_t>(rows * row_macs);
  // Double is several times slower.
  const double slowdown = work.spec.tier == Tier::kDouble ? kDoubleSlowdown : 1;
  const double evaluation =
      slowdown * static_cast<double>(std::max<int64_t>(1, work.spec.model->field_macs()));
  const double batch_rows = std::clamp(limits.batch_macs_max / evaluation, 1.0, 1e9);
  work.batch_rows_max = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(batch_rows)));
  return absl::OkStatus();
}

}  // namespace hyperserve
