// The calls of hyperserve.v1.Admin, which the daemon serves on an address of its own. The handlers
// queue candidates and rollbacks for the registry's thread and wait for nothing; that thread
// answers the call.
#pragma once

#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"

namespace hyperserve {

// `environment` must outlive the service.
CallService MakeAdminService(Environment* environment);

}  // namespace hyperserve
