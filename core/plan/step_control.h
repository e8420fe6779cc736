// What decides the steps of one row: how many, or which tolerances. Each row of a batch has its
// own.
#pragma once

#include <cstdint>
#include <variant>

#include "absl/status/status.h"

namespace hyperserve {

// What decides a row's step size: K equal steps, or error control.
enum class Stepping { kFixed, kErrorControlled };

inline constexpr int64_t kMaxStepsDefault = 10000;

// Equal steps of (s1 - s0) / steps.
struct FixedSteps {
  int64_t steps = 1;
  bool operator==(const FixedSteps&) const = default;
};

// Error-controlled steps. A method with an embedded pair only.
struct ErrorControl {
  double rtol = 1e-5;
  double atol = 1e-5;
  int64_t max_steps = kMaxStepsDefault;  // of one row, accepted and rejected
  bool operator==(const ErrorControl&) const = default;
};

using StepControl = std::variant<FixedSteps, ErrorControl>;

inline Stepping SteppingOf(const StepControl& control) {
  return std::holds_alternative<FixedSteps>(control) ? Stepping::kFixed
                                                     : Stepping::kErrorControlled;
}

// kInvalidArgument names the number that is wrong and what would be right.
absl::Status ValidateControl(const StepControl& control);

}  // namespace hyperserve
