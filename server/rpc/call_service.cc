#include "server/rpc/call_service.h"

#include <utility>

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

class CallsByPath final : public grpc::CallbackGenericService {
 public:
  explicit CallsByPath(std::map<std::string, CallStart> calls) : calls_(std::move(calls)) {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const auto found = calls_.find(context->method());
    if (found == calls_.end()) return new UnknownCall(context->method());
    return found->second(context);
  }

  const std::map<std::string, CallStart> calls_;
};

// A service with one method, whose name is empty: enough for reflection to list the service.
class Listed final : public grpc::Service {
 public:
  explicit Listed(const std::string& name) : path_(absl::StrCat("/", name, "/")) {
    using Handler = grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>;
    auto* const method = new grpc::internal::RpcServiceMethod(
        path_.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, nullptr);
    AddMethod(method);  // owns it
    MarkMethodCallback(
        0, new Handler([this](grpc::CallbackServerContext*) { return new UnknownCall(path_); }));
  }

 private:
  const std::string path_;
};

}  // namespace

RegisteredCalls Register(const std::vector<const CallService*>& services,
                         grpc::ServerBuilder& builder) {
  RegisteredCalls registered;
  std::map<std::string, CallStart> calls;
  for (const CallService* service : services) {
    for (const auto& [name, start] : service->methods) {
      calls.emplace(absl::StrCat("/", service->name, "/", name), start);
    }
    registered.listed.push_back(std::make_unique<Listed>(service->name));
    builder.RegisterService(registered.listed.back().get());
  }
  registered.generic = std::make_unique<CallsByPath>(std::move(calls));
  builder.RegisterCallbackGenericService(registered.generic.get());
  return registered;
}

}  // namespace hyperserve
