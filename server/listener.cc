#include "server/listener.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/host_port.h"
#include "core/base/status.h"
#include "server/metrics/log.h"
#include "server/net/listening_socket.h"
#include "server/reflection_service.h"
#include "server/rpc/call_service.h"

namespace hyperserve {
namespace {

// What gRPC has to say, as a line of our log. It says at its levels what clients do wrong.
void LogForGrpc(gpr_log_func_args* line) {
  Log(line->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kInfo : LogLevel::kDebug,
      NewLogLine().Add("event", "grpc").Add("message", line->message));
}

// A dead client's connection is found by a ping after a minute of silence.
constexpr int kPingPauseMs = 60'000, kPingAnswerMs = 20'000;

void SetArguments(const ListenerLimits& limits, grpc::ServerBuilder& builder) {
  const auto set = [&](const char* name, int64_t value) {
    builder.AddChannelArgument(
        name, static_cast<int>(std::min<int64_t>(value, std::numeric_limits<int>::max())));
  };
  set(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.connection_calls_max);
  set(GRPC_ARG_MAX_CONNECTION_IDLE_MS, limits.connection_idle_max.count());
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, limits.connection_start_max.count());
  // Clients that ping to keep a long call or an idle connection are welcome; gRPC would end their
  // connections, with the calls on it, after the third ping within five minutes.
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, limits.ping_interval_min.count());
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_KEEPALIVE_TIME_MS, kPingPauseMs);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingAnswerMs);
  builder.SetMaxReceiveMessageSize(limits.receive_bytes_max);
  // gRPC inflates before it looks at the size: 4 MB would become 4 GB. UNIMPLEMENTED, in its words.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.SetMaxSendMessageSize(-1);  // replies are bounded by max_reply_bytes
  if (limits.memory != nullptr) builder.SetResourceQuota(*limits.memory);
}

}  // namespace

void SetUpGrpc() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  gpr_set_log_function(LogForGrpc);
  google::protobuf::SetLogHandler(nullptr);  // we tell the client what does not decode
}

void Listener::Shutdown() {
  if (door) door->Close();
  if (server) server->Shutdown(std::chrono::system_clock::now());
}

absl::StatusOr<Listener> Listen(const std::string& flag, const std::string& address,
                                const ListenerLimits& limits, Door::Refused refused,
                                const CallService& service) {
  HS_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(address, /*port_min=*/0));
  auto sockets = ListeningSocket::Open(at.host, at.port);
  if (!sockets.ok()) return Annotate(sockets.status(), "--" + flag);
  Listener listener;
  listener.port = sockets->front().port();
  grpc::ServerBuilder builder;
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  SetArguments(limits, builder);
  const CallService reflection = MakeReflectionService({service.name});
  listener.calls = Register({&service, &reflection}, builder);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr) {
    return absl::InternalError(absl::StrCat("gRPC does not start on --", flag, "=", address));
  }
  listener.door = std::make_unique<Door>(*std::move(sockets), std::move(acceptor),
                                         limits.connections, std::move(refused));
  return listener;
}

}  // namespace hyperserve
