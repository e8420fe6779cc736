// Services as tables: the calls of each by their path, answered by one generic service of gRPC.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/rpc/environment.h"

namespace hyperserve {

// Starts a call whose headers have arrived; the reactor owns itself. Called on a thread of gRPC,
// for several calls at once; it must not wait. Never returns null.
using CallStart =
    std::function<grpc::ServerGenericBidiReactor*(grpc::GenericCallbackServerContext*)>;

// Plain data, made before the server and read by its threads. It must outlive the server, as must
// what its functions borrow.
struct CallService {
  std::string name;                          // "hyperserve.v1.Hyperserve"
  std::map<std::string, CallStart> methods;  // by name: "Classify"
};

// Adds the services to a server that is being built. The result must outlive the server. A call
// that none of them knows is answered UNIMPLEMENTED with words, a log line and a count, of the call
// `other`. The environment must outlive the server.
struct RegisteredCalls {
  std::unique_ptr<grpc::CallbackGenericService> generic;
  // gRPC lists a service in reflection only if it has a method that is not generic.
  std::vector<std::unique_ptr<grpc::Service>> listed;
};
// Call it once for each server, before it is built; paths are "/<service>/<method>".
RegisteredCalls Register(const std::vector<const CallService*>& services, Environment* environment,
                         grpc::ServerBuilder& builder);

}  // namespace hyperserve
