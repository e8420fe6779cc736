#include "server/registry/gate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

// The reference: tight enough that its own error is far below any correction's that is worth
// serving.
constexpr double kReferenceTolerance = 1e-6;
// References kept: both probes of a few corrections. One more starts the table anew.
constexpr size_t kReferencesMax = 64;
// Steps between two looks at `cancelled`.
constexpr int kStepsAtOnce = 8;

std::string ReferenceKey(const GateInput& input, const HostTensor& probe) {
  const std::string_view bytes(reinterpret_cast<const char*>(probe.bytes.data()),
                               probe.bytes.size());
  return absl::StrCat(input.model->base_digest(), "/",
                      static_cast<int>(input.candidate->spec().direction), "/",
                      static_cast<int>(probe.dtype), "/", Sha256Hex(bytes));
}

BatchSpec SpecOf(const GateInput& input, const std::variant<FixedPlan, AdaptivePlan>& plan) {
  const bool flow = input.model->spec().kind == ModelKind::kFlow;
  return {.model = input.model,
          .plan = plan,
          .entry = flow ? Entry::kState : Entry::kInput,
          .direction = input.candidate->spec().direction};
}

// Sum over rows of |z - reference| / |reference|; infinite where a row did not converge.
double SumOfErrors(const EngineGate::Solution& solution, const EngineGate::Solution& reference) {
  const size_t rows = reference.converged.size();
  const size_t elements = reference.state.size() / std::max<size_t>(rows, 1);
  double sum = 0.0;
  for (size_t row = 0; row < rows; ++row) {
    if (!solution.converged[row]) return std::numeric_limits<double>::infinity();
    double difference = 0.0, size = 0.0;
    for (size_t i = row * elements; i < (row + 1) * elements; ++i) {
      const double exact = reference.state[i];
      difference += std::pow(solution.state[i] - exact, 2);
      size += exact * exact;
    }
    // A reference of exactly zero has no relative error; the smallest float stands for its size.
    sum += std::sqrt(difference) /
           std::max(std::sqrt(size), double{std::numeric_limits<float>::min()});
  }
  return std::isfinite(sum) ? sum : std::numeric_limits<double>::infinity();
}

}  // namespace

EngineGate::EngineGate(std::unique_ptr<Engine> engine, std::function<bool()> cancelled)
    : engine_(std::move(engine)), cancelled_(std::move(cancelled)) {}

absl::StatusOr<EngineGate::Solution> EngineGate::Solve(const BatchSpec& spec,
                                                       const HostTensor& probe) {
  const Segment segment = {
      .rows = probe.shape[0],
      .data = {.dtype = probe.dtype, .shape = probe.shape, .bytes = probe.bytes}};
  const Batch batch = {.spec = spec, .segments = {segment}};
  HS_RETURN_IF_ERROR(engine_->Begin(batch));
  bool finished = false;
  while (!finished) {
    HS_ASSIGN_OR_RETURN(finished, engine_->Advance(kStepsAtOnce, cancelled_));
  }
  HS_ASSIGN_OR_RETURN(const BatchResult result, engine_->TakeFinished());
  Solution solution;
  for (const RowStatus status : result.status) {
    solution.converged.push_back(status == RowStatus::kConverged);
  }
  const auto state = result.state.as<float>();
  solution.state.assign(state.begin(), state.end());
  return solution;
}

absl::StatusOr<const EngineGate::Solution*> EngineGate::Reference(const GateInput& input,
                                                                  const HostTensor& probe) {
  const std::string key = ReferenceKey(input, probe);
  if (const auto found = references_.find(key); found != references_.end()) return &found->second;
  const AdaptivePlan plan = {.method = {.method = Method::kDopri5},
                             .rtol = kReferenceTolerance,
                             .atol = kReferenceTolerance};
  HS_ASSIGN_OR_RETURN(Solution solution, Solve(SpecOf(input, plan), probe));
  const auto failed = std::count(solution.converged.begin(), solution.converged.end(), false);
  if (failed > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the reference (", PrintPlan({.choice = plan}), ") did not converge on ",
                     failed, " of ", solution.converged.size(), " rows of the probe"));
  }
  if (references_.size() >= kReferencesMax) references_.clear();
  return &(references_[key] = std::move(solution));
}

absl::StatusOr<double> EngineGate::MeanError(const GateInput& input, const FixedPlan& plan,
                                             std::shared_ptr<const Hypersolver> correction) {
  BatchSpec spec = SpecOf(input, plan);
  spec.correction = std::move(correction);
  double sum = 0.0;
  size_t rows = 0;
  for (const HostTensor& probe : input.probes) {
    HS_ASSIGN_OR_RETURN(const Solution* reference, Reference(input, probe));
    HS_ASSIGN_OR_RETURN(const Solution solution, Solve(spec, probe));
    sum += SumOfErrors(solution, *reference);
    rows += reference->converged.size();
  }
  return sum / static_cast<double>(rows);
}

absl::StatusOr<std::vector<GateMeasurement>> EngineGate::Measure(const GateInput& input) {
  const HypersolverSpec& spec = input.candidate->spec();
  const double length = input.model->spec().span[1] - input.model->spec().span[0];
  std::vector<GateMeasurement> measurements;
  for (const int steps : spec.steps) {
    FixedPlan plan = {.method = spec.method, .steps = steps};
    GateMeasurement measurement = {.steps = steps};
    HS_ASSIGN_OR_RETURN(measurement.base_error, MeanError(input, plan, nullptr));
    plan.hypersolved = true;
    HS_ASSIGN_OR_RETURN(measurement.candidate_error, MeanError(input, plan, input.candidate));
    // Where the active one is not served (another direction, outside its range), it is no rival.
    if (input.active != nullptr &&
        CheckApplies(*input.active, plan, spec.direction, length / steps).ok()) {
      HS_ASSIGN_OR_RETURN(measurement.active_error, MeanError(input, plan, input.active));
    }
    measurements.push_back(measurement);
  }
  return measurements;
}

Verdict DecideGate(const std::vector<GateMeasurement>& measurements, double margin) {
  if (measurements.empty()) return {.passed = false, .reason = "no number of steps was measured"};
  Verdict verdict = {.passed = true};
  std::vector<std::string> lines;
  for (const GateMeasurement& at : measurements) {
    std::string line = absl::StrFormat("K = %d: error %.3g, classical method %.3g", at.steps,
                                       at.candidate_error, at.base_error);
    if (at.active_error.has_value())
      absl::StrAppendFormat(&line, ", active %.3g", *at.active_error);
    std::string fault;
    if (!std::isfinite(at.candidate_error)) {
      fault = "not finite";
    } else if (at.candidate_error >= at.base_error) {
      fault = "does not beat the classical method";
    } else if (at.active_error.has_value() &&
               at.candidate_error > *at.active_error * (1.0 + margin) + kReferenceTolerance) {
      fault = absl::StrFormat("more than %.3g %% worse than the active generation", 100 * margin);
    }
    if (!fault.empty()) absl::StrAppend(&line, " (", fault, ")");
    verdict.passed = verdict.passed && fault.empty();
    lines.push_back(std::move(line));
  }
  verdict.reason = absl::StrJoin(lines, "; ");
  return verdict;
}

}  // namespace hyperserve
