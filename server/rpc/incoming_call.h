// A call whose request we read ourselves. gRPC's generated handlers start only when the whole
// message has arrived, however long that takes, and answer what does not decode with an empty
// UNIMPLEMENTED.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/clock/alarm_clock.h"
#include "server/clock/clock.h"
#include "server/rpc/call.h"
#include "server/rpc/environment.h"
#include "server/rpc/ledgers/reply_ledger.h"

namespace hyperserve {

// Create it with new: a derived class deletes itself in Gone. gRPC's threads and the alarm clock's
// call it at the same time.
class IncomingCall : public grpc::ServerGenericBidiReactor {
 public:
  // Belongs to the thread that begins, then to the one that answers.
  Call& call() { return call_; }
  const std::string& peer() const { return peer_; }  // the client's address without the port

 protected:
  // Reads the request into `request`, which lives as long as the call. Then calls Begin, or, where
  // no whole request arrived in time, it does not decode or too many calls are open, Finish.
  // `environment` and `context` must outlive the call.
  IncomingCall(Environment* environment, grpc::GenericCallbackServerContext* context,
               std::string_view name, CallKind kind, google::protobuf::Message* request);
  ~IncomingCall() override = default;
  void Read();  // call it once, last in the constructor of a class that is final

  // The request is there. Called at most once, on a thread of gRPC.
  virtual void Begin() = 0;
  // gRPC is done with the call, and no alarm of it runs any more. Called once, last.
  virtual void Gone() = 0;
  void OnCancel() override { call_.Cancel(); }

  // Cancels the call where it still exists at `limit`. Call it at most once, before the reply goes.
  void CancelAt(Clock::TimePoint limit);
  // The message as bytes for gRPC.
  static grpc::ByteBuffer Serialize(const google::protobuf::Message& message);
  // Counts bytes of a reply of this call until the result goes away.
  ReplyLedger::Hold Count(int64_t bytes);

 private:
  // What an alarm that fires late may touch; OnDone empties it.
  struct Line {
    std::mutex mutex;
    // Guarded by mutex.
    IncomingCall* call;        // null: the call is gone
    AlarmClock::Ticket alarm;  // a call has one at a time
  };

  void OnReadDone(bool ok) final;
  void OnDone() final;
  void Alarm(Clock::TimePoint limit, void (IncomingCall::*act)());
  void CallOffAlarm();
  void GiveUpArrival();
  void ShedArrival();
  void TryCancel();
  absl::Status Open();
  absl::Status Decode();
  bool Claim() { return !claimed_.exchange(true); }  // who begins or refuses

  Environment* const environment_;
  grpc::GenericCallbackServerContext* const context_;
  google::protobuf::Message* const request_;
  const CallKind kind_;
  const std::string peer_;
  Call call_;
  const std::shared_ptr<Line> line_ = std::make_shared<Line>();
  std::atomic<bool> claimed_ = false;
  int64_t arrival_ = 0;   // its ticket in the ledger of arrivals
  bool counted_ = false;  // in the ledger of calls
  grpc::ByteBuffer received_;
};

}  // namespace hyperserve
