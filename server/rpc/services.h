// The services of hyperserve.v1. Their handlers run on gRPC's threads and never wait.
#pragma once

#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"

namespace hyperserve {

// The calls of Hyperserve: they convert the message, pin the model and queue the work. The
// batcher's solver threads answer. `environment` must outlive the service.
CallService MakeHyperserveService(Environment* environment);

// The calls of Admin, which the daemon serves on an address of its own: they queue candidates and
// rollbacks for the registry's thread, which answers. `environment` must outlive the service.
CallService MakeAdminService(Environment* environment);

}  // namespace hyperserve
