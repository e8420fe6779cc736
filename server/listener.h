// A gRPC server on one address. It offers health and reflection beside its service. A call that
// none of them knows is answered UNIMPLEMENTED with a message; so are the calls of the Open
// Inference Protocol.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/door.h"
#include "server/net/connection_ledger.h"
#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"

namespace hyperserve {

// Members are destroyed in the right order: the door first.
struct Listener {
  RegisteredCalls calls;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Door> door;
  int port = 0;  // the real one, where the address asked for port 0

  // Accepts no more and ends what runs. Does nothing where the listener never listened.
  void Shutdown();
};

// Turns on health and reflection for all later listeners. Call it before the first Listen.
void SetUpGrpc();

// Plain data, from the options page. Members at 0 are not meant to serve: the caller sets each.
struct ListenerLimits {
  int connection_calls_max = 0;  // calls at once on one connection
  ConnectionLimits connections;
  std::chrono::milliseconds connection_idle_max{0};   // without a call
  std::chrono::milliseconds connection_start_max{0};  // until HTTP/2 has begun
  std::chrono::milliseconds ping_interval_min{0};     // of a client's keepalive
  // Memory that the connections of all listeners may take together; may be null: unbounded.
  const grpc::ResourceQuota* memory = nullptr;
};

// The server accepts calls when Listen returns. `address` is host:port; port 0 takes any free one.
// `flag` names the address in messages. The service and the environment must outlive the listener.
// `refused` is told each connection that a limit closes. kUnavailable: the port is taken, or the
// address is not one of this machine. A port is never shared with another daemon.
absl::StatusOr<Listener> Listen(const std::string& flag, const std::string& address,
                                const ListenerLimits& limits, Door::Refused refused,
                                const CallService& service, Environment* environment);

}  // namespace hyperserve
