#include "server/listener.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include "absl/strings/str_cat.h"

namespace hyperserve {

void SetUpGrpc() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

absl::StatusOr<Listener> Listen(const std::string& flag, const std::string& address,
                                const ListenerLimits& limits, grpc::Service* service) {
  Listener listener;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &listener.port);
  // By default two daemons would share a port and each get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.connection_calls_max);
  builder.SetMaxReceiveMessageSize(limits.receive_bytes_max);
  builder.SetMaxSendMessageSize(-1);  // replies are bounded by max_reply_bytes
  builder.RegisterService(service);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || listener.port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on --", flag, "=", address,
                                               ": the port is taken or the address is not ours"));
  }
  return listener;
}

}  // namespace hyperserve
