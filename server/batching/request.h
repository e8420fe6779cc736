// A request in the batcher, from admission to its answer, and the pieces that it is cut into.
// Internal to this folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/engine.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

struct ClientAccount;

// Thread-safe: several solvers may hold pieces of one request. Pieces and the batcher share it; it
// is answered exactly once, by whoever calls Finish first, also where pieces are still in runs.
class PendingRequest {
 public:
  // Cuts the rows into pieces of at most work.batch_rows_max rows.
  PendingRequest(Work work, WorkDone done, Clock::TimePoint arrival);

  // Fixed for the life of the request, as are the two below. Any thread may read them.
  const Work& work() const { return work_; }
  Clock::TimePoint arrival() const { return arrival_; }
  int64_t piece_count() const { return piece_count_; }
  // The rows of a piece, borrowed from the work. Precondition: piece < piece_count().
  Segment PieceSegment(int64_t piece) const;

  // OK while the answer is wanted. Else kDeadlineExceeded, or kCancelled where the client cancelled
  // or the request was answered already.
  absl::Status Death(Clock::TimePoint now) const;

  // The first call answers the request, on the calling thread, and returns true; later calls do
  // nothing and return false. Call it with no lock held.
  bool Finish(absl::StatusOr<WorkResult> result, const WorkTimes& times);

  // Notes that a run takes a piece; the first time counts.
  void Begin(Clock::TimePoint now);
  // The times of a request that was admitted and is answered now.
  WorkTimes Times(Clock::TimePoint now) const;

  // Adds time that a solver spent on its rows, and takes what was added since the last call.
  void Spend(double seconds);
  // With the batcher's lock held, by which the ledger is charged.
  double TakeSpent();

  // What the ledger counts for it, from admission to the answer. Guarded by the batcher's lock.
  struct Counted {
    std::shared_ptr<ClientAccount> client;
    double size = 0, cost = 0;  // predicted MACs
  };
  Counted counted;

  // Adds the rows of one piece, once for each piece. Returns the merged result when no piece is
  // missing, else nullopt.
  std::optional<WorkResult> Accept(int64_t piece, WorkResult part);

 private:
  const Work work_;
  const WorkDone done_;
  const Clock::TimePoint arrival_;
  const int64_t piece_count_;
  std::atomic<bool> finished_{false};
  std::atomic<int64_t> spent_nanoseconds_{0};

  mutable std::mutex mutex_;
  std::vector<std::optional<BatchResult>> parts_;  // guarded by mutex_
  int64_t missing_;                                // guarded by mutex_
  std::optional<Clock::TimePoint> begun_;          // guarded by mutex_

  friend class QueueSet;
  int64_t waiting_pieces_ = 0;  // touched by QueueSet only
};

// A part of a request that fits into one run. It keeps the request alive, and so the rows' data.
struct Piece {
  std::shared_ptr<PendingRequest> request;
  int64_t index = 0;
  Segment segment;
  uint64_t came = 0;    // the turn in which it was admitted
  uint64_t number = 0;  // in the order of admission
  bool alone = false;   // true: it shared a run that failed, and is tried again without company
  // The rows that a run is given at a time, where the device was too full for all; 0: all.
  int64_t rows_at_once = 0;
  std::vector<BatchResult> solved;  // the results of its first rows, where they came in parts
};

// Of the rows of a piece that are not solved yet, those that a run is given next.
Segment NextPart(const Piece& piece);

// After a failure of the run that had its next part, beside others or not. True: it is worth
// another try, without company, and in halves where the device was full.
bool MayTryAgain(const absl::Status& failure, bool shared, Piece& piece);

}  // namespace hyperserve
