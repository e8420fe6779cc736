// The calls of hyperserve.v1.Hyperserve. The handlers run on gRPC's threads: they convert the
// message, pin the model and queue the work, and never wait. The batcher's solver threads answer.
#pragma once

#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"

namespace hyperserve {

// `environment` must outlive the service.
CallService MakeHyperserveService(Environment* environment);

}  // namespace hyperserve
