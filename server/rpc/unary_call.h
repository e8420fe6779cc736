// A call with one request and one reply.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "server/rpc/call.h"
#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"
#include "server/rpc/incoming_call.h"
#include "server/rpc/ledgers/reply_ledger.h"

namespace hyperserve {

// Any thread calls Answer exactly once after Begin. Deletes itself when gRPC is done with it.
class UnaryCall final : public IncomingCall {
 public:
  // The handler borrows both; they live as long as the call.
  struct Messages {
    std::unique_ptr<google::protobuf::Message> request, reply;
  };
  // Called once, on a thread of gRPC, when the whole request has arrived; it must not wait.
  using Handler = std::function<void(UnaryCall*, const Messages&)>;

  // Starts to read the request. Create it with new. `environment` and `context` must outlive the
  // call.
  UnaryCall(Environment* environment, grpc::GenericCallbackServerContext* context,
            std::string_view name, CallKind kind, Messages messages, Handler handler)
      : IncomingCall(environment, context, name, kind, messages.request.get()),
        messages_(std::move(messages)),
        handler_(std::move(handler)) {
    Read();
  }

  // Sends the reply, or the error, with the call's log line and metrics. The call may be gone when
  // this returns. A reply that is not read by the call's deadline is given up.
  void Answer(const absl::Status& status);

 private:
  void Begin() override { handler_(this, messages_); }
  void Gone() override { delete this; }

  Messages messages_;
  const Handler handler_;
  grpc::ByteBuffer reply_;
  ReplyLedger::Hold hold_;  // until gRPC is done with the reply
};

// The row of a method in a table of CallService. The handler may keep the request and the reply
// until it answers.
template <class Request, class Reply, class Handler>
CallStart Unary(Environment* environment, std::string_view name, CallKind kind, Handler handler) {
  return [=](grpc::GenericCallbackServerContext* context) {
    return new UnaryCall(
        environment, context, name, kind,
        {.request = std::make_unique<Request>(), .reply = std::make_unique<Reply>()},
        [handler](UnaryCall* unary, const UnaryCall::Messages& messages) {
          handler(unary, static_cast<const Request&>(*messages.request),
                  static_cast<Reply*>(messages.reply.get()));
        });
  };
}

}  // namespace hyperserve
