// The step control of one row: a number of equal steps, or tolerances. Rows of one batch may have
// different ones, of the same Stepping.
#pragma once

#include <cstdint>
#include <variant>

#include "absl/status/status.h"

namespace hyperserve {

// Which of the two StepControls all rows of a batch have.
enum class Stepping { kFixed, kErrorControlled };

inline constexpr int64_t kMaxStepsDefault = 10000;

// Equal steps of (s1 - s0) / steps.
struct FixedSteps {
  int64_t steps = 1;
  bool operator==(const FixedSteps&) const = default;
};

// Step sizes chosen by error control. Needs a method with an embedded pair.
struct ErrorControl {
  double rtol = 1e-5;
  double atol = 1e-5;
  int64_t max_steps = kMaxStepsDefault;  // accepted and rejected steps of one row
  bool operator==(const ErrorControl&) const = default;
};

// Under kFixed a row has FixedSteps, under kErrorControlled ErrorControl.
using StepControl = std::variant<FixedSteps, ErrorControl>;

// The kind alone; says nothing of the values.
inline Stepping SteppingOf(const StepControl& control) {
  return std::holds_alternative<FixedSteps>(control) ? Stepping::kFixed
                                                     : Stepping::kErrorControlled;
}

// kInvalidArgument names the wrong number and its limit: steps and max_steps are at least 1,
// tolerances are finite and above zero. Pure.
absl::Status ValidateControl(const StepControl& control);

}  // namespace hyperserve
