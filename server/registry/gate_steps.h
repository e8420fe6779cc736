// Where the gate measures a candidate, and what a candidate must keep of what is served. Pure.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "core/model/spec/spec.h"
#include "server/registry/gate_decision.h"

namespace hyperserve {

// Does the spec list this K (of a learned solver: this n)?
bool Claims(const HypersolverSpec& spec, int steps);

// The K at which the gate measures, ascending: those up to 32 that the candidate serves on the
// model's span, above them one in each factor of 1.25 and the last (at most 1000), and all that it
// claims. Of a learned solver, its n. A candidate that passes CheckKeeps serves every K that the
// active generation serves, so these are among them.
std::vector<int> GateSteps(const GateInput& input);

// A candidate must serve what the active generation serves, since clients ask for it by name: the
// same direction, every K that it claims, its range of eps. kFailedPrecondition names what is
// missing and how to insist on it. OK where nothing is active or input.may_narrow.
absl::Status CheckKeeps(const GateInput& input);

}  // namespace hyperserve
