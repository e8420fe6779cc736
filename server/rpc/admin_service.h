// The calls of hyperserve.v1.Admin, on an address of its own: they hand candidates to the registry
// and wait for nothing.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/rpc/environment.h"

namespace hyperserve {

// The environment outlives the service.
std::unique_ptr<grpc::Service> MakeAdminService(Environment* environment);

}  // namespace hyperserve
