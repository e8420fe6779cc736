#include "server/rpc/sample_stream.h"

#include <algorithm>
#include <utility>

#include "core/base/status.h"
#include "server/batching/work.h"
#include "server/calls/info.h"
#include "server/rpc/call.h"
#include "server/rpc/environment.h"
#include "server/rpc/solve_call.h"
#include "server/rpc/wire.h"

namespace hyperserve {
namespace {

constexpr int64_t kChunksAhead = 2;

}  // namespace

SampleStream::SampleStream(Environment* environment, grpc::GenericCallbackServerContext* context,
                           AskOf ask_of)
    : IncomingCall(environment, context, "SampleStream", CallKind::kStream, &request_),
      ask_of_(ask_of),
      environment_(environment),
      self_(this) {
  Read();
}

void SampleStream::Begin() {
  const std::shared_ptr<SampleStream> self = self_;  // another thread may end the stream meanwhile
  ask_ = ask_of_(request_);
  call().TakeId(ask_.sample.terms.request_id);
  status_ = Prepare();
  {
    const std::lock_guard lock(mutex_);
    if (self_ != nullptr) {
      deadline_alarm_ = environment_->alarms.Set(call().deadline() - environment_->clock->Now(),
                                                 [weak = std::weak_ptr(self)] {
                                                   if (const auto late = weak.lock())
                                                     late->GiveUp();
                                                 });
    }
  }
  begun_ = true;
  Pump();
}

absl::Status SampleStream::Prepare() {
  HS_ASSIGN_OR_RETURN(auto served, call().Pin(ask_.sample.terms.model));
  HS_ASSIGN_OR_RETURN(stream_, PrepareStream(ask_, std::move(served), environment_->limits));
  call().Bind(stream_.first_row);
  info_ = InfoOf(stream_.first_row, call().id());
  summary_ = info_;
  chunks_ = stream_.rows / stream_.chunk_rows + (stream_.rows % stream_.chunk_rows != 0 ? 1 : 0);
  return absl::OkStatus();
}

int64_t SampleStream::RowsBefore(int64_t chunk) const {
  return std::min(chunk * stream_.chunk_rows, stream_.rows);
}

SampleStream::Action SampleStream::NextAction() {
  if (finished_) return Action::kNothing;
  if (status_.ok() && call().cancelled()) {
    status_ = absl::CancelledError("the client cancelled the stream");
  }
  if (!status_.ok() || next_write_ == chunks_) {
    if (solving_ > 0 || writing_) return Action::kNothing;
    finished_ = true;
    return Action::kFinish;
  }
  if (!writing_ && solved_.contains(next_write_)) {
    Solved next = std::move(solved_.extract(next_write_).mapped());
    if (next_write_ + 1 == chunks_) ToWire(summary_, next.chunk.mutable_summary());
    in_writing_ = Serialize(next.chunk);
    hold_of_writing_ = std::move(next.hold);
    writing_ = true;
    return Action::kWrite;
  }
  if (next_submit_ < chunks_ && solving_ + static_cast<int64_t>(solved_.size()) < kChunksAhead) {
    ++solving_;
    return Action::kSubmit;
  }
  return Action::kNothing;
}

void SampleStream::Pump() {
  for (;;) {
    Action action;
    int64_t chunk = 0;
    absl::Status status;
    {
      const std::lock_guard lock(mutex_);
      action = NextAction();
      if (action == Action::kSubmit) chunk = next_submit_++;
      status = status_;
    }
    switch (action) {
      case Action::kNothing:
        return;
      case Action::kSubmit:
        Submit(chunk);
        break;
      case Action::kWrite:
        StartWrite(&in_writing_);
        break;
      case Action::kFinish:
        Finish(call().End(status));
        return;
    }
  }
}

void SampleStream::Submit(int64_t chunk) {
  const int64_t begin = RowsBefore(chunk);
  std::shared_ptr<SampleStream> self;
  {
    const std::lock_guard lock(mutex_);
    self = self_;
  }
  SubmitRungs(environment_->batcher, ChunkOf(stream_, begin, RowsBefore(chunk + 1) - begin),
              [self, chunk](absl::StatusOr<WorkResult> result, const WorkTimes& times) {
                self->TakeChunk(chunk, std::move(result), times);
                self->Pump();
              });
}

void SampleStream::TakeChunk(int64_t chunk, absl::StatusOr<WorkResult> result,
                             const WorkTimes& times) {
  const std::lock_guard lock(mutex_);
  if (absl::IsResourceExhausted(result.status()) && chunk > 0 && status_.ok()) {
    SubmitLater(chunk);
    return;
  }
  --solving_;
  call().Record(result, times);
  if (!result.ok()) {
    status_.Update(result.status());
    return;
  }
  SolveInfo info = info_;
  SetTimes(times, info);
  const SampleAnswer answer =
      MakeAnswer(ask_.sample, *stream_.first_row.served, std::move(info), *std::move(result));
  AddChunk(answer.info, summary_);
  const uint64_t first_row = ask_.sample.first_row + static_cast<uint64_t>(RowsBefore(chunk));
  v1::SampleChunk filled;
  ToWire(answer, first_row, &filled);
  ReplyLedger::Hold hold = Count(static_cast<int64_t>(filled.ByteSizeLong()));
  solved_.emplace(chunk, Solved{.chunk = std::move(filled), .hold = std::move(hold)});
}

void SampleStream::SubmitLater(int64_t chunk) {
  environment_->alarms.Set(environment_->limits.retry_pushback,
                           [self = self_, chunk] { self->Submit(chunk); });
}

void SampleStream::OnWriteDone(bool ok) {
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    hold_of_writing_ = {};
    ++next_write_;
    if (!ok) status_.Update(absl::CancelledError("the client went away"));
  }
  Pump();
}

void SampleStream::OnCancel() {
  IncomingCall::OnCancel();
  if (begun_) Pump();
}

void SampleStream::GiveUp() {
  {
    const std::lock_guard lock(mutex_);
    status_.Update(absl::DeadlineExceededError("the stream's deadline passed"));
  }
  CancelAt(environment_->clock->Now());
  Pump();
}

void SampleStream::Gone() {
  std::shared_ptr<SampleStream> last;
  const std::lock_guard lock(mutex_);
  last.swap(self_);
  environment_->alarms.CallOff(deadline_alarm_);
}

}  // namespace hyperserve
