// What a failed change of a file or folder means to a caller.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hyperserve {

// What `error`, an errno of a call that was to change `path`, means: kFailedPrecondition where the
// folder cannot be written (full, over quota, read-only, no permission), since no other request and
// no repetition mends that; else the system's code. Pure.
absl::Status WriteFailure(int error, const std::string& path, std::string_view doing);

}  // namespace hyperserve
