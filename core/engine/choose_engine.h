// Which engine runs a spec. Pure: a function of what is asked and of what the device has.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/ode/solve_options.h"

namespace hyperserve {

// An engine as the choice sees it.
struct EngineKind {
  std::string_view name;  // "readable"
  // OK, or kUnimplemented with the reason why this engine does not run so many rows of the spec.
  absl::Status (*supports)(const BatchSpec& spec, int64_t rows);
};

struct EngineChoice {
  std::string engine;
  std::string why;  // in words: what spoke against the engines that would have come first
  bool operator==(const EngineChoice&) const = default;
};

// The engines of a device in the order of preference.
using EngineKinds = std::vector<EngineKind>;

// A step map or a divergence costs as many tangents as the state has numbers; beyond this the
// exact way is refused.
inline constexpr int64_t kTangentsMax = 64;

// What the spec asks of a solver. Precondition: it has a model.
SolveOptions OptionsOf(const BatchSpec& spec);

// Everything about a spec that is wrong for every engine: kInvalidArgument.
absl::Status CheckSpec(const BatchSpec& spec);

// What the readable engine does not do: tier fast, exact log-densities of many dimensions.
absl::Status ReadableSupports(const BatchSpec& spec, int64_t rows);

// The first of the device's engines that supports the spec. kInvalidArgument as CheckSpec;
// kUnimplemented with every engine's reason where none does.
absl::StatusOr<EngineChoice> ChooseEngine(const BatchSpec& spec, int64_t rows,
                                          std::span<const EngineKind> device);

}  // namespace hyperserve
