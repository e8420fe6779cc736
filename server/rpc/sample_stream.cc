#include "server/rpc/sample_stream.h"

#include <algorithm>
#include <utility>

#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr int64_t kChunksAhead = 2;

// One value while all rows of the stream agree, none from then on.
template <class T>
void MergeUniform(const std::vector<T>& part, bool first, std::vector<T>& uniform) {
  const std::vector<T> collapsed = Collapse(part);
  if (first) {
    uniform = collapsed.size() == 1 ? collapsed : std::vector<T>();
  } else if (collapsed != uniform) {
    uniform.clear();
  }
}

}  // namespace

SampleStream* SampleStream::Start(Environment* environment, grpc::CallbackServerContext* context,
                                  const v1::SampleStreamRequest& request) {
  const std::shared_ptr<SampleStream> stream(
      new SampleStream(environment, context, request.sample().options().request_id()));
  stream->self_ = stream;
  stream->status_ = stream->Prepare(request);
  const auto left = stream->call_.deadline() - environment->clock->Now();
  stream->deadline_alarm_.Set(
      std::chrono::system_clock::now() +
          std::chrono::duration_cast<std::chrono::system_clock::duration>(left),
      [weak = std::weak_ptr(stream)](bool fired) {
        const std::shared_ptr<SampleStream> late = fired ? weak.lock() : nullptr;
        if (late) late->GiveUp();
      });
  stream->Pump();
  return stream.get();
}

SampleStream::SampleStream(Environment* environment, grpc::CallbackServerContext* context,
                           const std::string& asked_id)
    : call_(environment, context, "SampleStream", asked_id, CallKind::kStream), context_(context) {}

absl::Status SampleStream::Prepare(const v1::SampleStreamRequest& request) {
  HS_ASSIGN_OR_RETURN(auto served, call_.Pin(request.sample().options().model()));
  HS_ASSIGN_OR_RETURN(stream_,
                      PrepareStream(request, std::move(served), call_.environment().limits));
  call_.Bind(stream_.whole);
  reply_ = ContextOf(stream_.whole, call_.id());
  reply_.times = {.queue_seconds = 0, .solve_seconds = 0};  // of its chunks, summed
  const int64_t rows = stream_.whole.work.segment.rows;
  chunks_ = rows / stream_.chunk_rows + (rows % stream_.chunk_rows != 0 ? 1 : 0);
  return absl::OkStatus();
}

int64_t SampleStream::RowsBefore(int64_t chunk) const {
  return std::min(chunk * stream_.chunk_rows, stream_.whole.work.segment.rows);
}

SampleStream::Action SampleStream::NextAction() {
  if (finished_) return Action::kNothing;
  if (status_.ok() && call_.cancelled()) {
    status_ = absl::CancelledError("the client cancelled the stream");
  }
  if (!status_.ok() || next_write_ == chunks_) {
    if (solving_ > 0 || writing_) return Action::kNothing;
    finished_ = true;
    return Action::kFinish;
  }
  if (!writing_ && solved_.contains(next_write_)) {
    in_writing_ = std::move(solved_.extract(next_write_).mapped());
    if (next_write_ + 1 == chunks_) FillInfo(reply_, summary_, in_writing_.mutable_summary());
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
        Finish(call_.End(status));
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
  call_.environment().batcher->Submit(
      ChunkOf(stream_.whole.work, begin, RowsBefore(chunk + 1) - begin),
      [self, chunk](absl::StatusOr<WorkResult> result, const WorkTimes& times) {
        self->TakeChunk(chunk, std::move(result), times);
        self->Pump();
      });
}

void SampleStream::TakeChunk(int64_t chunk, absl::StatusOr<WorkResult> result,
                             const WorkTimes& times) {
  v1::SampleChunk filled;
  const std::lock_guard lock(mutex_);
  if (absl::IsResourceExhausted(result.status()) && chunk > 0 && status_.ok()) {
    SubmitLater(chunk);
    return;
  }
  --solving_;
  call_.Record(result, times);
  if (!result.ok()) {
    status_.Update(result.status());
    return;
  }
  AddToSummary(*result, times);
  const uint64_t first_row =
      stream_.whole.work.segment.first_row + static_cast<uint64_t>(RowsBefore(chunk));
  FillChunk(reply_, first_row, *std::move(result), &filled);
  solved_.emplace(chunk, std::move(filled));
}

void SampleStream::SubmitLater(int64_t chunk) {
  auto alarm = std::make_shared<grpc::Alarm>();
  grpc::Alarm& pending = *alarm;  // its own callback keeps it until it has fired
  pending.Set(std::chrono::system_clock::now() + call_.environment().limits.retry_pushback,
              [self = self_, alarm = std::move(alarm), chunk](bool) mutable {
                const auto fired = std::move(alarm);
                self->Submit(chunk);
              });
}

void SampleStream::AddToSummary(const WorkResult& part, const WorkTimes& times) {
  const bool first = summary_.engine.empty();
  MergeUniform(part.rows.status, first, summary_.rows.status);
  MergeUniform(part.rows.nfe, first, summary_.rows.nfe);
  MergeUniform(part.rows.correction_evaluations, first, summary_.rows.correction_evaluations);
  MergeUniform(part.rows.macs, first, summary_.rows.macs);
  summary_.rows.bucket = std::max(summary_.rows.bucket, part.rows.bucket);
  reply_.times.queue_seconds = *reply_.times.queue_seconds + *times.queue_seconds;
  reply_.times.solve_seconds = *reply_.times.solve_seconds + *times.solve_seconds;
  summary_.engine = part.engine;
  summary_.device = part.device;
}

void SampleStream::OnWriteDone(bool ok) {
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    ++next_write_;
    if (!ok) status_.Update(absl::CancelledError("the client went away"));
  }
  Pump();
}

void SampleStream::OnCancel() {
  call_.Cancel();
  Pump();
}

void SampleStream::GiveUp() {
  {
    const std::lock_guard lock(mutex_);
    status_.Update(absl::DeadlineExceededError("the stream's deadline passed"));
  }
  {
    const std::lock_guard lock(context_mutex_);
    if (!done_) context_->TryCancel();
  }
  Pump();
}

void SampleStream::OnDone() {
  {
    const std::lock_guard lock(context_mutex_);
    done_ = true;
  }
  std::shared_ptr<SampleStream> last;
  const std::lock_guard lock(mutex_);
  last.swap(self_);
}

}  // namespace hyperserve
