// The gate's decision and its inputs. Pure. Measuring is a function value (GateMeasure), so neither
// the decision nor the code that acts on it knows an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/verdicts.h"

namespace hyperserve {

// rtol and atol of the gate's reference. Its own error is far below that of any correction worth
// serving. DecideGate ignores differences to the active generation below this number.
inline constexpr double kGateReferenceTolerance = 1e-6;

// Rows to measure on: model inputs before preprocessing; of flows, states at the start of the
// solve.
struct Probe {
  HostTensor x;          // [rows, ...]
  HostTensor condition;  // [rows, features]; without dimensions where the model has none
};

// What is to be measured. The probes are the candidate's and, where it differs, the active
// generation's.
struct GateInput {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> candidate;
  std::shared_ptr<const Hypersolver> active;  // null: none is served
  std::vector<Probe> probes;                  // at least one
  // The publisher says that the candidate may serve less than the active generation (CheckKeeps).
  bool may_narrow = false;
};

// Mean relative errors of z(s1) at one K, over the rows of all probes. An error is infinite where a
// row did not converge.
struct GateMeasurement {
  int steps = 0;        // K; of a learned solver n
  bool claimed = true;  // false: the candidate serves this K, but does not claim to win at it
  double candidate_error = 0;
  std::optional<double> active_error;  // nullopt: no active generation serves this K
  double base_error = 0;               // of the classical method
  // Learned solvers: the classical plan of base_error. Empty: the corrected method, at the same K.
  std::string base_plan = {};
};

// Measures each K of GateSteps. Called on the registry's thread.
using GateMeasure =
    std::function<absl::StatusOr<std::vector<GateMeasurement>>(const GateInput& input)>;

// The candidate passes if at every K its error is finite, below that of the classical method, and
// at most (1 + margin) times that of the active generation plus kGateReferenceTolerance. At a K
// that it serves without a claim it must be no worse than the active generation, or where that does
// not serve the K, than the classical method, with the same margin. No measurement at all is a
// refusal. A learned solver must only equal the classical plan, but for kGateReferenceTolerance.
// The reason holds the numbers of every K. `margin` is a share: 0.02 is 2 %.
Verdict DecideGate(const std::vector<GateMeasurement>& measurements, double margin);

// The result of a publish or a rollback.
struct PublishOutcome {
  int64_t generation = 0;             // that is served now
  int64_t previous_generation = 0;    // that was served before; 0: none
  std::vector<GateMeasurement> gate;  // empty for a rollback
  double seconds = 0;                 // of the examination and the swap
};

}  // namespace hyperserve
