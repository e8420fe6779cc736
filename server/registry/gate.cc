#include "server/registry/gate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/file.h"
#include "core/io/tensor.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/registry/gate_decision.h"
#include "server/registry/gate_steps.h"

namespace hyperserve {
namespace {

// References to keep: both probes of a few corrections. One more empties the map first.
constexpr size_t kReferencesMax = 64;

std::string Digest(const HostTensor& rows) {
  return Sha256Hex({reinterpret_cast<const char*>(rows.bytes.data()), rows.bytes.size()});
}

std::string ReferenceKey(const GateInput& input, const Probe& probe) {
  return absl::StrCat(
      input.model->base_digest(), "/", static_cast<int>(input.candidate->spec().direction), "/",
      static_cast<int>(probe.x.dtype), "/", Digest(probe.x), "/", Digest(probe.condition));
}

BatchSpec SpecOf(const GateInput& input) {
  const bool flow = input.model->spec().kind == ModelKind::kFlow;
  return {.model = input.model,
          .entry = flow ? Entry::kState : Entry::kInput,
          .direction = input.candidate->spec().direction,
          .save_at = input.model->spec().save_at};
}

}  // namespace

double ExaminationMacs(const GateInput& input) {
  const HypersolverSpec& spec = input.candidate->spec();
  double rows = 0, steps = 0;
  for (const Probe& probe : input.probes) rows += static_cast<double>(probe.x.shape[0]);
  if (spec.learned()) {
    double macs = 0;
    for (const int evaluations : spec.steps) {
      const FixedPlan plan = {.method = spec.method, .steps = evaluations};
      const int64_t own = PlanMacs(*input.model, input.candidate.get(), plan);
      macs += static_cast<double>(own);
      if (input.active != nullptr && input.active->table(evaluations) != nullptr) {
        macs += static_cast<double>(PlanMacs(*input.model, input.active.get(), plan));
      }
      for (const FixedPlan& rival : ClassicalRivals(*input.model, own)) {
        macs += static_cast<double>(PlanMacs(*input.model, nullptr, rival));
      }
    }
    return rows * macs;
  }
  for (const int measured : GateSteps(input)) steps += measured;
  double step = 0;
  for (const Hypersolver* const rival :
       {static_cast<const Hypersolver*>(nullptr), input.candidate.get(), input.active.get()}) {
    step += static_cast<double>(StepMacs(*input.model, rival, spec.method));
  }
  return rows * steps * step;
}

EngineGate::EngineGate(DeviceRuntime* runtime, std::function<bool()> cancelled)
    : runtime_(runtime), cancelled_(std::move(cancelled)) {}

absl::StatusOr<Solution> EngineGate::Solve(const BatchSpec& spec, const StepPlan& plan,
                                           const Probe& probe) {
  const auto run = [this](const BatchSpec& solved, const StepPlan& under, const Segment& segment) {
    return SolveAlone(*runtime_, solved, under, segment, cancelled_);
  };
  const Segment all = {
      .rows = probe.x.shape[0], .data = probe.x.view(), .condition = probe.condition.view()};
  return SolveRows(spec, plan, all, all.rows, run);
}

absl::StatusOr<const Solution*> EngineGate::Reference(const GateInput& input, const Probe& probe) {
  const std::string key = ReferenceKey(input, probe);
  if (const auto found = references_.find(key); found != references_.end()) return &found->second;
  const AdaptivePlan plan = {.method = {.method = Method::kDopri5},
                             .rtol = kGateReferenceTolerance,
                             .atol = kGateReferenceTolerance};
  HS_ASSIGN_OR_RETURN(Solution solution, Solve(SpecOf(input), plan, probe));
  const auto all = static_cast<int64_t>(solution.status.size());
  const int64_t failed =
      all - std::count(solution.status.begin(), solution.status.end(), RowStatus::kConverged);
  if (failed > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the reference (", PrintPlan({.choice = plan}), ") did not converge on ",
                     failed, " of ", all, " rows of the probe"));
  }
  if (references_.size() >= kReferencesMax) references_.clear();
  return &(references_[key] = std::move(solution));
}

absl::StatusOr<double> EngineGate::MeanError(const GateInput& input, const FixedPlan& plan,
                                             std::shared_ptr<const Hypersolver> correction) {
  BatchSpec spec = SpecOf(input);
  spec.correction = std::move(correction);
  double sum = 0.0, rows = 0.0;
  for (const Probe& probe : input.probes) {
    HS_ASSIGN_OR_RETURN(const Solution* reference, Reference(input, probe));
    HS_ASSIGN_OR_RETURN(const Solution solution, Solve(spec, plan, probe));
    const PlanError error = ErrorAgainst(*reference, solution);
    const auto count = static_cast<double>(error.rows.size());
    sum += error.mean * count;
    rows += count;
  }
  return sum / rows;
}

absl::Status EngineGate::MeasureRivals(const GateInput& input, Errors& known,
                                       GateMeasurement& measurement) {
  const FixedPlan plan = {.method = input.candidate->spec().method, .steps = measurement.steps};
  const int64_t macs = PlanMacs(*input.model, input.candidate.get(), plan);
  measurement.base_error = std::numeric_limits<double>::infinity();
  for (const FixedPlan& rival : ClassicalRivals(*input.model, macs)) {
    const std::string name = PrintPlan({.choice = rival});
    if (!known.contains(name)) {
      HS_ASSIGN_OR_RETURN(known[name], MeanError(input, rival, nullptr));
    }
    if (measurement.base_plan.empty() || known[name] < measurement.base_error) {
      measurement.base_error = known[name];
      measurement.base_plan = name;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GateMeasurement>> EngineGate::Measure(const GateInput& input) {
  HS_RETURN_IF_ERROR(CheckKeeps(input));
  const HypersolverSpec& spec = input.candidate->spec();
  const std::array<double, 2>& span = input.model->spec().span;
  std::vector<GateMeasurement> measurements;
  Errors known;
  for (const int steps : GateSteps(input)) {
    FixedPlan plan = {.method = spec.method, .steps = steps};
    GateMeasurement measurement = {.steps = steps, .claimed = Claims(spec, steps)};
    if (spec.learned()) {
      HS_RETURN_IF_ERROR(MeasureRivals(input, known, measurement));
    } else {
      HS_ASSIGN_OR_RETURN(measurement.base_error, MeanError(input, plan, nullptr));
    }
    plan.hypersolved = true;
    HS_ASSIGN_OR_RETURN(measurement.candidate_error, MeanError(input, plan, input.candidate));
    // The active generation is a rival only at a K that it serves in this direction.
    if (input.active != nullptr && CheckApplies(*input.active, plan, spec.direction, span).ok()) {
      HS_ASSIGN_OR_RETURN(measurement.active_error, MeanError(input, plan, input.active));
    }
    measurements.push_back(measurement);
  }
  return measurements;
}

}  // namespace hyperserve
