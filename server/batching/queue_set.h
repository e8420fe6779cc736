// What waits, by key: bookkeeping without threads, locks or a clock of its own. The key of a queue
// is its BatchSpec; rows of one queue may share runs. Internal to this folder.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/engine/batch_spec.h"
#include "server/batching/batch_policy.h"
#include "server/batching/batcher_options.h"
#include "server/batching/request.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

// The work of one key. Live while something waits or is under way.
struct Queue {
  const uint64_t key;
  const BatchSpec spec;
  const int64_t batch_rows_max;       // of its first request
  int64_t rows = 0;                   // waiting
  int64_t runs = 0;                   // under way, those that gave way among them
  std::map<uint64_t, Piece> waiting;  // by number: in the order in which they came
  std::set<std::pair<double, uint64_t>> by_evaluations;  // of those; the number beside it
};

// Seconds that a MAC takes, as runs measure it; 0: nothing is known yet.
using Pace = double;

class QueueSet {
 public:
  // `options` must outlive this.
  explicit QueueSet(const BatcherOptions& options) : options_(options) {}

  // Null: no queue of this spec is live.
  Queue* Find(const BatchSpec& spec);
  // All pieces of the request, behind those that wait.
  void Add(const std::shared_ptr<PendingRequest>& request, uint64_t turn);
  // A piece that was taken, at its old place.
  void PutBack(Queue& queue, Piece piece);

  // Pieces that leave their queue: to be admitted, and those for which nobody waits any more.
  struct Taken {
    std::vector<Piece> pieces, dead;
  };
  // For a new run: the piece that goes first, and what may share its run. The run is under way from
  // now on. No pieces: all were dead, there is no run, and the queue is gone where it has no other.
  Taken TakeForStart(Queue& queue, Pick pick, Clock::TimePoint now);
  // For a run of this load: what may join it and finds room.
  Taken TakeForRun(Queue& queue, Pick pick, Joining joining, const Load& load, int64_t room,
                   Clock::TimePoint now);
  // From all queues what nobody waits for any more.
  std::vector<Piece> TakeDead(Clock::TimePoint now);

  // Of the queues in which something waits, in one order.
  struct View {
    std::vector<Queue*> queues;
    std::vector<QueueSnapshot> snapshots;
  };
  View Look(Pace pace);

  // The queue may be gone afterwards.
  void RunEnded(Queue& queue);

  bool empty() const { return rows_ == 0; }
  // Without bytes and MACs, which count until the answer.
  QueueDepth depth() const;

 private:
  using Entry = std::map<uint64_t, Piece>::iterator;
  void Insert(Queue& queue, Piece piece);
  Piece Remove(Queue& queue, Entry entry);
  Entry FirstOf(Queue& queue, Pick pick) const;
  void DropIfIdle(Queue& queue);

  const BatcherOptions& options_;
  std::list<Queue> queues_;
  int64_t requests_ = 0, rows_ = 0;  // waiting
  uint64_t next_key_ = 1, next_number_ = 1;
};

}  // namespace hyperserve
