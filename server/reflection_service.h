// Server reflection: which services there are, and the descriptors of all that they name. In
// version 1 and in v1alpha, which has the same messages in another package. gRPC's own has v1alpha
// only, and takes a thread for each open call.
#pragma once

#include <string>
#include <vector>

#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"

namespace hyperserve {

// One service for each version, which list `services`, by their full names, beside health and
// reflection. Their calls run on gRPC's threads and read the descriptors that are linked in. A name
// that is not known is answered NOT_FOUND within the stream, as the protocol wants. A call counts
// in the environment's ledgers and ends at deadline_max. The environment must outlive the calls.
std::vector<CallService> MakeReflectionServices(std::vector<std::string> services,
                                                Environment* environment);

}  // namespace hyperserve
