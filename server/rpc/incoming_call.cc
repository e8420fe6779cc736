#include "server/rpc/incoming_call.h"

#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "server/calls/limits.h"

namespace hyperserve {
IncomingCall::IncomingCall(Environment* environment, grpc::GenericCallbackServerContext* context,
                           std::string_view name, CallKind kind, google::protobuf::Message* request)
    : environment_(environment),
      context_(context),
      request_(request),
      kind_(kind),
      peer_(PeerOf(*context)),
      call_(environment, context, name, kind) {
  line_->call = this;
}

void IncomingCall::Read() {
  if (const absl::Status open = Open(); !open.ok()) {
    claimed_ = true;
    Finish(call_.End(open));
    return;
  }
  const Clock::TimePoint limit =
      environment_->clock->Now() + environment_->limits.request_arrival_max;
  Alarm(std::min(limit, call_.deadline()), &IncomingCall::GiveUpArrival);
  arrival_ = environment_->arrivals.Join(environment_->clock->Now(), [line = line_] {
    const std::lock_guard lock(line->mutex);
    if (line->call != nullptr) line->call->ShedArrival();
  });
  StartRead(&received_);
}

// Whoever reaches Admin may always act.
absl::Status IncomingCall::Open() {
  if (kind_ == CallKind::kAdmin) return absl::OkStatus();
  HS_RETURN_IF_ERROR(environment_->calls.Join(peer_));
  counted_ = true;
  return absl::OkStatus();
}

void IncomingCall::OnReadDone(bool ok) {
  environment_->arrivals.Leave(arrival_);
  if (!Claim()) return;
  CallOffAlarm();
  absl::Status status;
  if (ok) {
    status = Decode();
  } else if (context_->IsCancelled()) {
    status = absl::CancelledError(
        "no whole request arrived: the client went away, or connections hold too much memory");
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
  const auto bytes = static_cast<int64_t>(received_.Length());
  if (bytes > environment_->limits.receive_bytes_max) {
    received_.Clear();
    call_.ForbidRetry();
    return absl::ResourceExhaustedError(
        absl::StrCat("the request has ", bytes, " bytes, more than receive_bytes_max = ",
                     environment_->limits.receive_bytes_max, "; send fewer rows at a time"));
  }
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

void IncomingCall::CancelAt(Clock::TimePoint limit) { Alarm(limit, &IncomingCall::TryCancel); }

void IncomingCall::Alarm(Clock::TimePoint limit, void (IncomingCall::*act)()) {
  const std::lock_guard lock(line_->mutex);
  if (line_->call == nullptr) return;
  line_->alarm = environment_->alarms.Set(limit - environment_->clock->Now(), [line = line_, act] {
    const std::lock_guard lock(line->mutex);
    if (line->call != nullptr) (line->call->*act)();
  });
}

void IncomingCall::CallOffAlarm() {
  const std::lock_guard lock(line_->mutex);
  environment_->alarms.CallOff(line_->alarm);
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
    environment_->alarms.CallOff(line_->alarm);
  }
  environment_->arrivals.Leave(arrival_);
  if (counted_) environment_->calls.Leave(peer_);
  Gone();
}

}  // namespace hyperserve
