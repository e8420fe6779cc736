// A gRPC server on one address, with health and reflection beside its services. Any other call,
// those of the Open Inference Protocol among them, is UNIMPLEMENTED in words.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hyperserve {

struct Listener {
  std::unique_ptr<grpc::CallbackGenericService> others;  // answers what no service knows
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

// Call once before the first listener.
void SetUpGrpc();

struct ListenerLimits {
  int receive_bytes_max = 0;
  int connection_calls_max = 0;
};

// Listens when Listen returns; the services outlive the listener. `address`: host:port, port 0: any
// free one. kUnavailable in words where it is taken: ports are never shared with another daemon.
absl::StatusOr<Listener> Listen(const std::string& flag, const std::string& address,
                                const ListenerLimits& limits,
                                const std::vector<grpc::Service*>& services);

}  // namespace hyperserve
