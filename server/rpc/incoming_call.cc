#include "server/rpc/incoming_call.h"

#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/calls/limits.h"

namespace hyperserve {
IncomingCall::IncomingCall(Environment* environment, grpc::GenericCallbackServerContext* context,
                           std::string_view name, CallKind kind, google::protobuf::Message* request)
    : environment_(environment),
      context_(context),
      request_(request),
      peer_(PeerOf(*context)),
      call_(environment, context, name, kind) {
  line_->call = this;
}

void IncomingCall::Read() {
  const Clock::TimePoint limit =
      environment_->clock->Now() + environment_->limits.request_arrival_max;
  Alarm(arrival_alarm_, std::min(limit, call_.deadline()), &IncomingCall::GiveUpArrival);
  arrival_ = environment_->arrivals.Join(environment_->clock->Now(), [line = line_] {
    const std::lock_guard lock(line->mutex);
    if (line->call != nullptr) line->call->ShedArrival();
  });
  StartRead(&received_);
}

void IncomingCall::OnReadDone(bool ok) {
  environment_->arrivals.Leave(arrival_);
  if (!Claim()) return;
  ++line_->alarm;  // the arrival's alarm counts no more
  absl::Status status;
  if (ok) {
    status = Decode();
  } else if (context_->IsCancelled()) {
    status = absl::CancelledError(
        "no whole request arrived: the client went away, or it is over receive_bytes_max");
  } else {
    status = absl::InvalidArgumentError("the call brought no request message");
  }
  if (status.ok()) {
    Begin();
  } else {
    Finish(call_.End(status));
  }
}

absl::Status IncomingCall::Decode() {
  grpc::ProtoBufferReader reader(&received_);
  const bool parsed = request_->ParseFromZeroCopyStream(&reader);
  received_.Clear();
  if (parsed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the request is no ", request_->GetDescriptor()->full_name(),
                   ": bytes that do not decode, or text that is not UTF-8"));
}

void IncomingCall::GiveUpArrival() {
  if (!Claim()) return;
  Finish(call_.End(absl::DeadlineExceededError(
      "the request did not arrive whole within request_arrival_max_seconds or its deadline")));
}

void IncomingCall::ShedArrival() {
  if (!Claim()) return;
  Finish(call_.End(absl::ResourceExhaustedError(
      absl::StrCat("more than ", environment_->arrivals.slow_max(),
                   " requests are arriving slowly, and this is the oldest of them; send smaller "
                   "requests, or raise memory_max"))));
}

void IncomingCall::TryCancel() { context_->TryCancel(); }

void IncomingCall::CancelAt(Clock::TimePoint limit) {
  Alarm(reply_alarm_, limit, &IncomingCall::TryCancel);
}

void IncomingCall::Alarm(grpc::Alarm& alarm, Clock::TimePoint limit, void (IncomingCall::*act)()) {
  const auto left = limit - environment_->clock->Now();
  alarm.Set(std::chrono::system_clock::now() +
                std::chrono::duration_cast<std::chrono::system_clock::duration>(left),
            [line = line_, number = ++line_->alarm, act](bool fired) {
              if (!fired) return;
              const std::lock_guard lock(line->mutex);
              if (line->call != nullptr && line->alarm == number) (line->call->*act)();
            });
}

grpc::ByteBuffer IncomingCall::Serialize(const google::protobuf::Message& message) {
  constexpr int kBlockBytes = 64 << 10;
  grpc::ByteBuffer bytes;
  grpc::ProtoBufferWriter writer(&bytes, kBlockBytes, static_cast<int>(message.ByteSizeLong()));
  // Fails only for more than 2 GiB, which max_reply_bytes excludes.
  (void)message.SerializeToZeroCopyStream(&writer);
  return bytes;
}

ReplyLedger::Hold IncomingCall::Count(int64_t bytes) {
  return environment_->replies.Take(peer_, bytes);
}

void IncomingCall::OnDone() {
  {
    const std::lock_guard lock(line_->mutex);
    line_->call = nullptr;
  }
  environment_->arrivals.Leave(arrival_);
  Gone();
}

}  // namespace hyperserve
