// Server reflection, version 1: which services there are, and the descriptors of all that they
// name. gRPC's library here has version v1alpha only.
#pragma once

#include <string>
#include <vector>

#include "server/rpc/call_service.h"

namespace hyperserve {

// Lists `services`, by their full names, beside those of gRPC: health and reflection. Its calls run
// on gRPC's threads and read the descriptors that are linked in. A name that is not known is
// answered NOT_FOUND within the stream, as the protocol wants.
CallService MakeReflectionService(std::vector<std::string> services);

}  // namespace hyperserve
