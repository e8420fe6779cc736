// The gate's measurement on a real engine: how far candidate, active and base method land from a
// dopri5 reference (DESIGN.md section 7). Its decision is DecideGate.
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
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/plan/plan.h"
#include "server/registry/gate_decision.h"

namespace hyperserve {

// Belongs to one thread: the registry's.
class EngineGate {
 public:
  // `runtime` must outlive this. `cancelled` is asked before each evaluation of f; where it says
  // yes, Measure ends with kCancelled.
  EngineGate(DeviceRuntime* runtime, std::function<bool()> cancelled);

  // kFailedPrecondition where the reference itself does not converge on a probe.
  absl::StatusOr<std::vector<GateMeasurement>> Measure(const GateInput& input);

 private:
  absl::StatusOr<Solution> Solve(const BatchSpec& spec, const StepPlan& plan,
                                 const HostTensor& probe);
  absl::StatusOr<const Solution*> Reference(const GateInput& input, const HostTensor& probe);
  // Mean over the rows of all probes of |z - reference| / |reference|.
  absl::StatusOr<double> MeanError(const GateInput& input, const FixedPlan& plan,
                                   std::shared_ptr<const Hypersolver> correction);

  DeviceRuntime* const runtime_;
  const std::function<bool()> cancelled_;
  // Of (base digest, direction, probe): computed once.
  std::map<std::string, Solution> references_;
};

}  // namespace hyperserve
