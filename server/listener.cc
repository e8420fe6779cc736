#include "server/listener.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

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

void SetUpGrpc() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

absl::StatusOr<Listener> Listen(const std::string& flag, const std::string& address,
                                const ListenerLimits& limits,
                                const std::vector<grpc::Service*>& services) {
  Listener listener;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &listener.port);
  // By default two daemons would share a port and each get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.connection_calls_max);
  builder.SetMaxReceiveMessageSize(limits.receive_bytes_max);
  builder.SetMaxSendMessageSize(-1);  // replies are bounded by max_reply_bytes
  for (grpc::Service* service : services) builder.RegisterService(service);
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
