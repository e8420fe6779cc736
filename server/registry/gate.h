// The gate's measurement on an engine: how far the candidate, the active generation and the base
// method end from a dopri5 reference. DecideGate makes the decision.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/plan_error.h"
#include "core/model/net/model.h"
#include "core/plan/plan.h"
#include "server/registry/gate_decision.h"

namespace hyperserve {

// The predicted MACs of the measurement of a candidate at GateSteps, without the reference. Pure.
double ExaminationMacs(const GateInput& input);

// Belongs to one thread: the registry's. It solves on that thread and uses no solver of the
// batcher.
class EngineGate {
 public:
  // `runtime` must outlive the gate. `cancelled` is asked before each evaluation of f.
  EngineGate(DeviceRuntime* runtime, std::function<bool()> cancelled);

  // One measurement for each K of GateSteps; of a learned solver, for each n that it has a table
  // for, against the best classical plan of no greater MACs. kFailedPrecondition: the reference
  // does not converge on a row of a probe, or CheckKeeps. kCancelled: `cancelled` said yes.
  absl::StatusOr<std::vector<GateMeasurement>> Measure(const GateInput& input);

 private:
  absl::StatusOr<Solution> Solve(const BatchSpec& spec, const StepPlan& plan, const Probe& probe);
  absl::StatusOr<const Solution*> Reference(const GateInput& input, const Probe& probe);
  // The errors of classical plans that were measured already, by their spelling.
  using Errors = std::map<std::string, double>;
  // Fills in the best classical plan of no greater MACs than learned:n, and its error.
  absl::Status MeasureRivals(const GateInput& input, Errors& known, GateMeasurement& measurement);
  // Mean over the rows of all probes of |z - reference| / |reference|.
  absl::StatusOr<double> MeanError(const GateInput& input, const FixedPlan& plan,
                                   std::shared_ptr<const Hypersolver> correction);

  DeviceRuntime* const runtime_;
  const std::function<bool()> cancelled_;
  // By base digest, direction and probe. Each is solved once; the map is emptied when it is full.
  std::map<std::string, Solution> references_;
};

}  // namespace hyperserve
