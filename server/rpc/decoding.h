// Requests that gRPC cannot decode never reach a handler: gRPC's library answers them UNIMPLEMENTED
// without a word. Here they become what they are: INVALID_ARGUMENT in words, with an id, a log line
// and a count.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "server/rpc/environment.h"

namespace hyperserve {

// For the builder of a server. `environment` must outlive the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeDecodingWatch(
    Environment* environment);

}  // namespace hyperserve
