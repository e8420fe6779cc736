#include "server/rpc/decoding.h"

#include <string>
#include <string_view>

#include "server/rpc/call.h"

namespace hyperserve {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

class DecodingWatch final : public grpc::experimental::Interceptor {
 public:
  DecodingWatch(Environment* environment, std::string_view method)
      : environment_(environment), name_(method.substr(method.rfind('/') + 1)) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      // Our own UNIMPLEMENTED says what is missing.
      if (status.error_code() == grpc::UNIMPLEMENTED && status.error_message().empty()) {
        Refuse(methods);
      }
    }
    methods->Proceed();
  }

 private:
  void Refuse(InterceptorBatchMethods* methods) {
    const grpc::Status status(grpc::INVALID_ARGUMENT,
                              "the request does not decode as the message that this call takes: "
                              "its bytes are damaged, or a text in it is not valid UTF-8");
    const std::string id = RecordUnheard(*environment_, name_, status);
    methods->ModifySendStatus(status);
    methods->GetSendTrailingMetadata()->emplace(kRequestIdTrailer, id);
  }

  Environment* const environment_;
  const std::string name_;
};

class DecodingWatches final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit DecodingWatches(Environment* environment) : environment_(environment) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new DecodingWatch(environment_, info->method());  // gRPC deletes it with the call
  }

 private:
  Environment* const environment_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeDecodingWatch(
    Environment* environment) {
  return std::make_unique<DecodingWatches>(environment);
}

}  // namespace hyperserve
