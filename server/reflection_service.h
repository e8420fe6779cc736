// Server reflection, version 1: which services there are, and the descriptors of all that they
// name. gRPC's library here has version v1alpha only.
#pragma once

#include <string>
#include <vector>

#include "server/rpc/call_service.h"

namespace hyperserve {

// Lists `services` beside those of gRPC: health and reflection.
CallService MakeReflectionService(std::vector<std::string> services);

}  // namespace hyperserve
