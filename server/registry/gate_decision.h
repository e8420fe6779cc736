// The gate's decision, and what it is made of. Pure: whoever measures is behind GateMeasure, so
// that neither the decision nor those who act on it know an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/verdicts.h"

namespace hyperserve {

// rtol and atol of the gate's reference: tight enough that its own error is far below any
// correction's that is worth serving. Differences below it do not count.
inline constexpr double kGateReferenceTolerance = 1e-6;

// What is measured for a decision. Probes: the candidate's and, where it differs, the active one's;
// rows are model inputs before preprocessing (flows: z at the start of the solve).
struct GateInput {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> candidate;
  std::shared_ptr<const Hypersolver> active;  // null: none is served
  std::vector<HostTensor> probes;
};

// Mean relative errors of z(s1) at one K, over the rows of all probes; infinite where a row did not
// converge.
struct GateMeasurement {
  int steps = 0;
  double candidate_error = 0;
  std::optional<double> active_error;  // nullopt: there is none that would be served here
  double base_error = 0;
};

// One measurement for every K that the candidate declares.
using GateMeasure =
    std::function<absl::StatusOr<std::vector<GateMeasurement>>(const GateInput& input)>;

// Does the candidate pass, and why not, in words with the numbers. Passes where at every K it beats
// the base and is no worse than the active generation by more than `margin` (0.02: 2 %).
Verdict DecideGate(const std::vector<GateMeasurement>& measurements, double margin);

// What a publish or a rollback came to.
struct PublishOutcome {
  int64_t generation = 0;
  int64_t previous_generation = 0;
  std::vector<GateMeasurement> gate;
  double seconds = 0;
};

}  // namespace hyperserve
