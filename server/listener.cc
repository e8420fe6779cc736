#include "server/listener.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/support/server_interceptor.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/host_port.h"
#include "core/base/status.h"
#include "server/metrics/log.h"
#include "server/net/listening_socket.h"
#include "server/reflection_service.h"
#include "server/rpc/call.h"
#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"

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
  // gRPC assembles a message before it looks at its size. So its limit saves no memory, and it
  // tells nobody: our calls have one of their own (IncomingCall), and `memory` bounds them all.
  builder.SetMaxReceiveMessageSize(-1);
  // gRPC inflates before it looks at the size: 4 MB would become 4 GB. UNIMPLEMENTED, in its words.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.SetMaxSendMessageSize(-1);  // replies are bounded by max_reply_bytes
  if (limits.memory != nullptr) builder.SetResourceQuota(*limits.memory);
}

// A call of gRPC's own health service counts as an open call. Its Watch ends only when its client
// wants, and one that is too many is cancelled.
class HealthCall final : public grpc::experimental::Interceptor {
 public:
  HealthCall(Environment* environment, grpc::ServerContextBase* context)
      : environment_(environment), context_(context), peer_(PeerOf(*context)) {
    counted_ = environment_->calls.Join(peer_).ok();
  }
  ~HealthCall() override {
    if (counted_) environment_->calls.Leave(peer_);
  }
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (!counted_ && !std::exchange(ended_, true)) context_->TryCancel();
    methods->Proceed();
  }

 private:
  Environment* const environment_;
  grpc::ServerContextBase* const context_;
  const std::string peer_;  // the client's address without the port
  bool counted_ = false, ended_ = false;
};

class HealthCounter final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit HealthCounter(Environment* environment) : environment_(environment) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    if (!std::string_view(info->method()).starts_with("/grpc.health.")) return nullptr;
    return new HealthCall(environment_, info->server_context());
  }

 private:
  Environment* const environment_;
};

}  // namespace

void SetUpGrpc() {
  grpc::EnableDefaultHealthCheckService(true);
  gpr_set_log_function(LogForGrpc);
  google::protobuf::SetLogHandler(nullptr);  // we tell the client what does not decode
}

void Listener::Shutdown() {
  if (door) door->Close();
  if (server) server->Shutdown(std::chrono::system_clock::now());
}

absl::StatusOr<Listener> Listen(const std::string& flag, const std::string& address,
                                const ListenerLimits& limits, Door::Refused refused,
                                const CallService& service, Environment* environment) {
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
  const std::vector<CallService> reflection = MakeReflectionServices({service.name}, environment);
  std::vector<const CallService*> services = {&service};
  for (const CallService& version : reflection) services.push_back(&version);
  listener.calls = Register(services, environment, builder);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<HealthCounter>(environment));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr) {
    return absl::InternalError(absl::StrCat("gRPC does not start on --", flag, "=", address));
  }
  listener.door = std::make_unique<Door>(*std::move(sockets), std::move(acceptor),
                                         limits.connections, std::move(refused));
  return listener;
}

}  // namespace hyperserve
