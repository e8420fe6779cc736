// Failures as the person at the command line is told of them: what happened, and what to do.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hyperserve {

// A mistake on the command line, to be told with a pointer to the help.
absl::Status UsageError(std::string_view message);
bool IsUsageError(const absl::Status& status);

// A failure to be told with a way out of its own, in place of what its code suggests. OK stays OK.
absl::Status WithWayOut(absl::Status status, std::string_view way_out);

// A failure that lies in a file of the caller's, to be told with a pointer to it, not to the
// daemon.
absl::Status FileError(absl::Status status);

// "NOT_FOUND: no model 'x' ...\nwhat to do: ...".
std::string ExplainFailure(const absl::Status& status);

}  // namespace hyperserve
