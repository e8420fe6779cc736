// How one row of a solve ended. A row that fails ends in its own status; it never fails the call or
// other rows. Pure; any thread.
#pragma once

#include <string_view>

namespace hyperserve {

// Set once, by the solver; the server may turn a converged row into kNonFinite where its outputs
// overflow (server/calls/rows.h).
enum class RowStatus {
  kConverged,      // the row reached s1
  kStepLimit,      // the row took max_steps steps and did not reach s1
  kStepUnderflow,  // the controller asked for a step too small to change s
  kNonFinite,      // the state, a slope or the log-density is no longer finite
};

// "converged", "step_limit", "step_underflow", "non_finite".
std::string_view RowStatusName(RowStatus status);

}  // namespace hyperserve
