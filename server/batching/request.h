// What the batcher holds of one request from admission to its answer, and the pieces that it is cut
// into. Internal to this folder.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/engine.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

class PendingRequest {
 public:
  // Cuts into pieces of at most batch_rows_max rows.
  PendingRequest(Work work, WorkDone done, Clock::TimePoint arrival);

  const Work& work() const { return work_; }
  Clock::TimePoint arrival() const { return arrival_; }
  int64_t piece_count() const { return piece_count_; }
  Segment PieceSegment(int64_t piece) const;

  // Why nobody waits for the answer any more: answered already, deadline passed, cancelled; else
  // OK.
  absl::Status Death(Clock::TimePoint now) const;

  // The first call answers; later ones do nothing and return false.
  bool Finish(absl::StatusOr<WorkResult> result, const WorkTimes& times);

  // A run takes one of its pieces.
  void Begin(Clock::TimePoint now);
  // Of a request that was admitted and is answered now.
  WorkTimes Times(Clock::TimePoint now) const;

  // Takes one piece's rows. The merged result when it was the last missing one.
  std::optional<WorkResult> Accept(int64_t piece, WorkResult part);

 private:
  const Work work_;
  const WorkDone done_;
  const Clock::TimePoint arrival_;
  const int64_t piece_count_;
  std::atomic<bool> finished_{false};

  mutable std::mutex mutex_;
  std::vector<std::optional<BatchResult>> parts_;  // guarded by mutex_
  int64_t missing_;                                // guarded by mutex_
  std::optional<Clock::TimePoint> begun_;          // guarded by mutex_

  friend class QueueSet;
  int64_t waiting_pieces_ = 0;  // touched by QueueSet only
};

// A part of a request that fits into one run. It holds the request, and so the rows' data.
struct Piece {
  std::shared_ptr<PendingRequest> request;
  int64_t index = 0;
  Segment segment;
  uint64_t came = 0;    // the turn in which it was admitted
  uint64_t number = 0;  // in the order of admission
  bool alone = false;   // shared a run that failed: it is tried again without company
};

}  // namespace hyperserve
