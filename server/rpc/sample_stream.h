// SampleStream: chunks in row order, solved two ahead of the one that is being written and no
// further, so a client that does not drain costs nothing. One generation for the whole stream. A
// stream is shed (kResourceExhausted) at its first chunk or not at all: later ones wait for room.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <mutex>

#include "hyperserve/v1/hyperserve.pb.h"
#include "server/batching/work.h"
#include "server/calls/flow.h"
#include "server/calls/info.h"
#include "server/rpc/call.h"
#include "server/rpc/environment.h"

namespace hyperserve {

class SampleStream final : public grpc::ServerWriteReactor<v1::SampleChunk> {
 public:
  // Starts the stream; it lives until gRPC and the batcher are done with it.
  static SampleStream* Start(Environment* environment, grpc::CallbackServerContext* context,
                             StreamAsk ask);

 private:
  enum class Action { kNothing, kSubmit, kWrite, kFinish };

  SampleStream(Environment* environment, grpc::CallbackServerContext* context, StreamAsk ask);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  absl::Status Prepare();
  // Does what can be done now. May be called from several threads at once.
  void Pump();
  Action NextAction();  // under mutex_; claims the action for the caller
  void Submit(int64_t chunk);
  void TakeChunk(int64_t chunk, absl::StatusOr<WorkResult> result, const WorkTimes& times);
  void GiveUp();                    // the deadline has passed
  void SubmitLater(int64_t chunk);  // under mutex_
  int64_t RowsBefore(int64_t chunk) const;

  const StreamAsk ask_;
  Call call_;
  grpc::CallbackServerContext* const context_;
  grpc::Alarm deadline_alarm_;  // a client that never drains must not keep the stream for ever
  // Fixed by Prepare.
  PreparedStream stream_;
  SolveInfo info_;  // of every chunk, before its solve
  int64_t chunks_ = 0;

  // Of its own: gRPC may call OnWriteDone (which takes mutex_) within TryCancel.
  std::mutex context_mutex_;
  bool done_ = false;  // guarded by context_mutex_: the context may be gone

  std::mutex mutex_;
  // All below guarded by mutex_.
  std::shared_ptr<SampleStream> self_;         // until OnDone
  std::map<int64_t, v1::SampleChunk> solved_;  // waiting to be written
  v1::SampleChunk in_writing_;                 // gRPC reads it while writing_
  SolveInfo summary_;                          // of the chunks so far
  absl::Status status_;
  int64_t next_submit_ = 0;
  int64_t next_write_ = 0;
  int64_t solving_ = 0;
  bool writing_ = false;
  bool finished_ = false;
};

}  // namespace hyperserve
