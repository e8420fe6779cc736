// How one row of a solve ended.
#pragma once

#include <string_view>

namespace hyperserve {

enum class RowStatus {
  kConverged,      // reached s1
  kStepLimit,      // the step limit was reached before s1
  kStepUnderflow,  // the controller asked for a step too small to move s
  kNonFinite,      // the state, a slope or the log-density stopped being finite
};

std::string_view RowStatusName(
    RowStatus status);  // "converged", "step_limit", "step_underflow", "non_finite"

}  // namespace hyperserve
