// The call SampleStream. It sends chunks in row order, all of one generation. At most two chunks
// are solved ahead of the one that is being written, so a client that does not read costs no work.
// The last chunk carries the summary. A stream is shed (RESOURCE_EXHAUSTED) at its first chunk or
// never: a later chunk that finds the queues full is submitted again after retry_pushback.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "hyperserve/v1/hyperserve.pb.h"
#include "server/batching/work.h"
#include "server/calls/flow.h"
#include "server/calls/info.h"
#include "server/clock/alarm_clock.h"
#include "server/rpc/environment.h"
#include "server/rpc/incoming_call.h"
#include "server/rpc/ledgers/reply_ledger.h"

namespace hyperserve {

// Owns itself: it lives until gRPC and the batcher are done with it. gRPC's threads, the solver
// threads and the alarm clock's call it at the same time.
class SampleStream final : public IncomingCall {
 public:
  using AskOf = StreamAsk (*)(const v1::SampleStreamRequest&);

  // Starts when its request has arrived; ends with the error where it cannot. `environment` must
  // outlive the stream. Create it with new.
  SampleStream(Environment* environment, grpc::GenericCallbackServerContext* context, AskOf ask_of);

 private:
  enum class Action { kNothing, kSubmit, kWrite, kFinish };

  struct Solved {
    v1::SampleChunk chunk;
    ReplyLedger::Hold hold;  // until the client has read it
  };

  void Begin() override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void Gone() override;

  absl::Status Prepare();
  // Takes every action that is possible now. Several threads may call it at once.
  void Pump();
  Action NextAction();  // under mutex_; no other thread gets the same action
  void Submit(int64_t chunk);
  void TakeChunk(int64_t chunk, absl::StatusOr<WorkResult> result, const WorkTimes& times);
  void GiveUp();                    // ends the stream at its deadline
  void SubmitLater(int64_t chunk);  // under mutex_
  int64_t RowsBefore(int64_t chunk) const;

  v1::SampleStreamRequest request_;
  const AskOf ask_of_;
  std::atomic<bool> begun_ = false;
  Environment* const environment_;
  // Fixed by Begin.
  StreamAsk ask_;
  PreparedStream stream_;
  SolveInfo info_;  // the info of every chunk before its solve
  int64_t chunks_ = 0;

  std::mutex mutex_;
  // All below guarded by mutex_.
  std::shared_ptr<SampleStream> self_;  // until OnDone
  AlarmClock::Ticket deadline_alarm_;   // ends the stream of a client that never reads
  std::map<int64_t, Solved> solved_;    // chunks that wait to be written
  grpc::ByteBuffer in_writing_;         // gRPC reads it while writing_
  ReplyLedger::Hold hold_of_writing_;
  SolveInfo summary_;  // of the chunks so far
  absl::Status status_;
  int64_t next_submit_ = 0;
  int64_t next_write_ = 0;
  int64_t solving_ = 0;  // chunks that the batcher has, or that will be submitted again
  bool writing_ = false;
  bool finished_ = false;
};

}  // namespace hyperserve
