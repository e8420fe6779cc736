#include "server/listener.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/metrics/log.h"

namespace hyperserve {
namespace {

class UnknownCall final : public grpc::ServerGenericBidiReactor {
 public:
  explicit UnknownCall(const std::string& method) {
    Finish({grpc::UNIMPLEMENTED,
            absl::StrCat("no method ", absl::CEscape(method.substr(0, kMethodBytesMax)),
                         " here: this daemon speaks hyperserve.v1, as server reflection lists it; "
                         "the Open Inference Protocol is not built yet")});
  }
  void OnDone() override { delete this; }

 private:
  static constexpr size_t kMethodBytesMax = 200;
};

class UnknownCalls final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new UnknownCall(context->method());
  }
};

}  // namespace

namespace {

// The libraries have lines of their own; here they are events like any other.
void LogLibrary(gpr_log_func_args* said) {
  const bool bad = said->severity == GPR_LOG_SEVERITY_ERROR;
  Log(bad ? LogLevel::kWarn : LogLevel::kDebug,
      NewLogLine().Add("event", "grpc").Add("message", said->message));
}

}  // namespace

void SetUpGrpc() {
  gpr_set_log_function(LogLibrary);
  google::protobuf::SetLogHandler(nullptr);  // it tells what the answer to the call tells
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

absl::StatusOr<Listener> Listen(
    const std::string& flag, const std::string& address, const ListenerLimits& limits,
    const std::vector<grpc::Service*>& services,
    std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> watch) {
  Listener listener;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &listener.port);
  // By default two daemons would share a port and each get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.connection_calls_max);
  builder.SetMaxReceiveMessageSize(limits.receive_bytes_max);
  builder.SetMaxSendMessageSize(-1);  // replies are bounded by max_reply_bytes
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watches;
  watches.push_back(std::move(watch));
  builder.experimental().SetInterceptorCreators(std::move(watches));
  listener.others = std::make_unique<UnknownCalls>();
  builder.RegisterCallbackGenericService(listener.others.get());
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || listener.port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on --", flag, "=", address,
                                               ": the port is taken or the address is not ours"));
  }
  return listener;
}

}  // namespace hyperserve
