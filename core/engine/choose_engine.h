// Which engine runs a spec. Pure: a function of what is asked and of what the device has.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"

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

// Everything about a spec that is wrong for every engine: kInvalidArgument.
absl::Status CheckSpec(const BatchSpec& spec);

// What the readable engine does not do: tier fast, exact log-densities of many dimensions.
absl::Status ReadableSupports(const BatchSpec& spec, int64_t rows);

// The first of the device's engines that supports the spec. kInvalidArgument as CheckSpec;
// kUnimplemented with every engine's reason where none does.
absl::StatusOr<EngineChoice> ChooseEngine(const BatchSpec& spec, int64_t rows,
                                          std::span<const EngineKind> device);

}  // namespace hyperserve
