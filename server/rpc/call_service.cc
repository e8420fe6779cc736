#include "server/rpc/call_service.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/call.h"
#include "server/rpc/environment.h"

namespace hyperserve {
namespace {

class UnknownCall final : public grpc::ServerGenericBidiReactor {
 public:
  UnknownCall(Environment* environment, grpc::CallbackServerContext* context,
              const std::string& method)
      : call_(environment, context, "other") {
    Finish(call_.End(absl::UnimplementedError(absl::StrCat(
        "no method ", absl::CEscape(method.substr(0, kMethodBytesMax)),
        " here: this daemon speaks hyperserve.v1, Admin at its admin_address and the rest "
        "at its address, as server reflection lists them; "
        "the Open Inference Protocol is not built yet"))));
  }
  void OnDone() override { delete this; }

 private:
  static constexpr size_t kMethodBytesMax = 200;
  Call call_;
};

class CallsByPath final : public grpc::CallbackGenericService {
 public:
  CallsByPath(std::map<std::string, CallStart> calls, Environment* environment)
      : calls_(std::move(calls)), environment_(environment) {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const auto found = calls_.find(context->method());
    if (found == calls_.end()) return new UnknownCall(environment_, context, context->method());
    return found->second(context);
  }

  const std::map<std::string, CallStart> calls_;
  Environment* const environment_;
};

// A service with one method, whose name is empty: enough for reflection to list the service.
class Listed final : public grpc::Service {
 public:
  Listed(const std::string& name, Environment* environment) : path_(absl::StrCat("/", name, "/")) {
    using Handler = grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>;
    auto* const method = new grpc::internal::RpcServiceMethod(
        path_.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, nullptr);
    AddMethod(method);  // owns it
    MarkMethodCallback(0, new Handler([this, environment](grpc::CallbackServerContext* context) {
                         return new UnknownCall(environment, context, path_);
                       }));
  }

 private:
  const std::string path_;
};

}  // namespace

RegisteredCalls Register(const std::vector<const CallService*>& services, Environment* environment,
                         grpc::ServerBuilder& builder) {
  RegisteredCalls registered;
  std::map<std::string, CallStart> calls;
  for (const CallService* service : services) {
    for (const auto& [name, start] : service->methods) {
      calls.emplace(absl::StrCat("/", service->name, "/", name), start);
    }
    registered.listed.push_back(std::make_unique<Listed>(service->name, environment));
    builder.RegisterService(registered.listed.back().get());
  }
  registered.generic = std::make_unique<CallsByPath>(std::move(calls), environment);
  builder.RegisterCallbackGenericService(registered.generic.get());
  return registered;
}

}  // namespace hyperserve
