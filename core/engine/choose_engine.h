// The choice of the engine that runs a spec: a function of the spec, the number of rows and the
// engines of the device, which may prepare themselves when first asked (the fused one packs a
// flow). Any thread may call it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/ode/solve_options.h"

namespace hyperserve {

// One entry in a device's list of engines.
struct EngineKind {
  std::string_view name;  // "readable"
  // OK, or kUnimplemented with the reason why this engine cannot run so many rows of the spec.
  // The same answer for the same spec and rows. Another code is a fault of the device, which ends
  // the choice. Precondition: CheckSpec(spec).ok().
  std::function<absl::Status(const BatchSpec& spec, int64_t rows)> supports;
};

// The answer of ChooseEngine. Every reply tells both texts (SolveInfo).
struct EngineChoice {
  std::string engine;
  std::string why;  // in words: the reason against each engine that is preferred to this one
  bool operator==(const EngineChoice&) const = default;
};

// The engines of a device in the order of preference.
using EngineKinds = std::vector<EngineKind>;

// The largest number of state elements with an exact log-density. A step map or a divergence takes
// one tangent for each element.
inline constexpr int64_t kTangentsMax = 64;

// True where the solve runs against its model's field: it solves -f(s0 + s1 - s, z).
// Precondition: spec.model is set. kForward is never against the field.
bool IsReflected(const BatchSpec& spec);
// The largest number of evaluations of f between which kVjp keeps what it needs on its way back. A
// longer one-step plan evaluates f again; a table is walked back as a whole, and may not be longer.
inline constexpr int64_t kRecordedEvaluationsMax = 64;

// The part of the spec that the solver needs. Precondition: spec.model is set. Knots become breaks
// on the solver's clock; those at the ends of the span or outside are left out, since no step could
// be cut there.
SolveOptions OptionsOf(const BatchSpec& spec);

// kInvalidArgument where no engine could run the spec: no model, a classifier that is solved
// against its direction or from noise, outputs of a flow, a dtype that the entry does not take, a
// correction of another model or with an input that the method lacks, a log-density that the plan
// does not have, a derivative that is not defined, guidance or knots that model or plan do not
// take, a bad span or save_at (ValidateSolve); of a field that is code tier double, a log-density
// or a derivative, or that it was not loaded.
absl::Status CheckSpec(const BatchSpec& spec);

// kUnimplemented for tier fast, which is that of the fused engine, and for an exact log-density of
// more than kTangentsMax state elements; kHutchinson has no such bound. The number of rows does not
// matter.
absl::Status ReadableSupports(const BatchSpec& spec, int64_t rows);

// The first engine in `device` that supports the spec. kInvalidArgument as CheckSpec;
// kUnimplemented with the reason of each engine where none supports it. Asks the engines in their
// order and none after the first that takes the spec. A failure of an engine other than
// kUnimplemented is returned as it is.
absl::StatusOr<EngineChoice> ChooseEngine(const BatchSpec& spec, int64_t rows,
                                          std::span<const EngineKind> device);

}  // namespace hyperserve
