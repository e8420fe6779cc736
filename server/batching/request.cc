#include "server/batching/request.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/engine/engine.h"
#include "server/batching/scatter.h"

namespace hyperserve {
namespace {

double Seconds(Clock::TimePoint from, Clock::TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

PendingRequest::PendingRequest(Work work, WorkDone done, Clock::TimePoint arrival)
    : work_(std::move(work)),
      done_(std::move(done)),
      arrival_(arrival),
      piece_count_((work_.segment.rows + work_.batch_rows_max - 1) / work_.batch_rows_max),
      parts_(static_cast<size_t>(piece_count_)),
      missing_(piece_count_) {}

Segment PendingRequest::PieceSegment(int64_t piece) const {
  const int64_t begin = piece * work_.batch_rows_max;
  return RowsOf(work_.segment, begin, std::min(work_.batch_rows_max, work_.segment.rows - begin));
}

absl::Status PendingRequest::Death(Clock::TimePoint now) const {
  if (finished_.load(std::memory_order_acquire)) return absl::CancelledError("answered already");
  absl::Status left = work_.patience.Left(now);
  if (!absl::IsDeadlineExceeded(left)) return left;
  return absl::DeadlineExceededError(
      absl::StrCat("the deadline passed ", Seconds(arrival_, now), " s after the request came"));
}

bool PendingRequest::Finish(absl::StatusOr<WorkResult> result, const WorkTimes& times) {
  if (finished_.exchange(true, std::memory_order_acq_rel)) return false;
  done_(std::move(result), times);
  return true;
}

void PendingRequest::Begin(Clock::TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (!begun_) begun_ = std::max(now, arrival_);  // it may have come after the turn began
}

WorkTimes PendingRequest::Times(Clock::TimePoint now) const {
  const std::lock_guard lock(mutex_);
  WorkTimes times{.queue_seconds = Seconds(arrival_, begun_.value_or(now))};
  if (begun_) times.solve_seconds = Seconds(*begun_, now);
  return times;
}

void PendingRequest::Spend(double seconds) {
  spent_nanoseconds_.fetch_add(static_cast<int64_t>(1e9 * seconds), std::memory_order_relaxed);
}

double PendingRequest::TakeSpent() {
  return 1e-9 * static_cast<double>(spent_nanoseconds_.exchange(0, std::memory_order_relaxed));
}

std::optional<WorkResult> PendingRequest::Accept(int64_t piece, WorkResult part) {
  const std::lock_guard lock(mutex_);
  parts_[static_cast<size_t>(piece)] = std::move(part.rows);
  if (--missing_ > 0) return std::nullopt;
  std::vector<BatchResult> parts;
  parts.reserve(parts_.size());
  for (std::optional<BatchResult>& one : parts_) parts.push_back(*std::move(one));
  part.rows = Concatenate(std::move(parts));
  return part;
}

Segment NextPart(const Piece& piece) {
  int64_t begin = 0;
  for (const BatchResult& part : piece.solved) begin += static_cast<int64_t>(part.status.size());
  const int64_t left = piece.segment.rows - begin;
  const int64_t rows = piece.rows_at_once == 0 ? left : std::min(piece.rows_at_once, left);
  return RowsOf(piece.segment, begin, rows);
}

bool MayTryAgain(const absl::Status& failure, bool shared, Piece& piece) {
  if (absl::IsUnavailable(failure)) return false;  // the device is lost
  const bool full = absl::IsResourceExhausted(failure);
  const int64_t rows = NextPart(piece).rows;
  if (!shared && (!full || rows == 1)) return false;
  piece.alone = true;
  if (full) piece.rows_at_once = (rows + 1) / 2;
  return true;
}

}  // namespace hyperserve
