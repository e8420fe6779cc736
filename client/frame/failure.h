// Failures for the user at the command line: what happened, and what to do. Pure.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hyperserve {

// A mistake on the command line, kInvalidArgument. RunProgram adds a pointer to the help.
absl::Status UsageError(std::string_view message);
// Told by a payload of the status, so a function that makes a new status of it loses that.
bool IsUsageError(const absl::Status& status);

// Sets the advice that ExplainFailure prints in place of the one for the code. OK stays OK.
absl::Status WithWayOut(absl::Status status, std::string_view way_out);

// A failure caused by a file of the user; the advice is to correct it or to name another.
absl::Status FileError(absl::Status status);

// "NOT_FOUND: no model 'x' ...\nwhat to do: ...\n". Precondition: the status is not OK.
std::string ExplainFailure(const absl::Status& status);

}  // namespace hyperserve
