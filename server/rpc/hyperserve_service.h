// The calls of hyperserve.v1.Hyperserve. Handlers convert, pin and enqueue; answers come from the
// batcher's solver threads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/rpc/environment.h"

namespace hyperserve {

// The environment outlives the service.
std::unique_ptr<grpc::Service> MakeHyperserveService(Environment* environment);

}  // namespace hyperserve
