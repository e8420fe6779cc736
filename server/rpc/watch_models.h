// The call WatchModels: first what is served, then each change, until the client goes away, its
// deadline, or the daemon's end. A client that does not read is dropped once many events wait.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "hyperserve/v1/admin.pb.h"
#include "server/clock/alarm_clock.h"
#include "server/registry/registry_options.h"
#include "server/rpc/environment.h"
#include "server/rpc/incoming_call.h"

namespace hyperserve {

// Owns itself until gRPC is done with it. gRPC's threads, the alarm clock's and the registry's
// call it at the same time. Create it with new.
class WatchModels final : public IncomingCall {
 public:
  // Starts to read the request, which holds nothing. `environment` must outlive the call.
  WatchModels(Environment* environment, grpc::GenericCallbackServerContext* context);

 private:
  void Begin() override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void Gone() override;

  void Put(v1::WatchModelsReply event);
  void Stop(const absl::Status& why);
  void Go();  // writes the next event or ends the call, where nothing is under way

  v1::WatchModelsRequest request_;
  Environment* const environment_;

  std::mutex mutex_;
  // All below guarded by mutex_.
  std::shared_ptr<WatchModels> self_;  // until Gone
  AlarmClock::Ticket deadline_alarm_;
  int64_t listener_ = 0;  // of environment_->events; 0: none
  std::deque<v1::WatchModelsReply> waiting_;
  grpc::ByteBuffer in_writing_;  // gRPC reads it while writing_
  absl::Status status_;          // not OK: to be ended with it
  bool begun_ = false;
  bool writing_ = false;
  bool finished_ = false;
};

}  // namespace hyperserve
