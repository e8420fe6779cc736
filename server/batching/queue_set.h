// The waiting pieces, in one queue for each BatchSpec; pieces of one queue may share runs. No
// threads, no locks, no clock: a caller holds the batcher's lock. Internal to this folder.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/engine/batch_spec.h"
#include "server/batching/batch_policy.h"
#include "server/batching/batcher_options.h"
#include "server/batching/client_ledger.h"
#include "server/batching/request.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

// The work of one spec. It exists while a piece of the spec waits or a run of it is under way.
struct Queue {
  const uint64_t key;
  const BatchSpec spec;
  int64_t batch_rows_max;  // of its first request; less once the device was too full for a run
  int64_t rows = 0;        // waiting
  int64_t runs = 0;        // under way, those that gave way among them
  const std::shared_ptr<ClientAccount> opened_by;
  std::map<uint64_t, Piece> waiting;  // by number: in the order in which they came
  struct Line {                       // the pieces of one client
    std::set<uint64_t> numbers;
    std::set<std::pair<double, uint64_t>> by_evaluations;  // the number beside it
  };
  std::map<ClientAccount*, Line> lines;  // those that are not empty
};

// Seconds a MAC, as measured on runs; 0: nothing was measured yet.
using Pace = double;

// A Queue* that it gives stays valid until the queue is gone: while a piece waits in it or a run of
// it is under way.
class QueueSet {
 public:
  // `options` must outlive the set.
  explicit QueueSet(const BatcherOptions& options) : options_(options) {}

  // The queue of this spec; null: there is none.
  Queue* Find(const BatchSpec& spec);
  // Looks at every queue: live_queues_max bounds them.
  const Queue* Find(const BatchSpec& spec) const;
  // Adds all pieces of the request behind those that wait. Precondition: its client is set. `turn`
  // counts the batcher's decisions.
  void Add(const std::shared_ptr<PendingRequest>& request, uint64_t turn);
  // Puts a piece that was taken back to its old place. Its queue must still be there: end its run
  // afterwards.
  void PutBack(Queue& queue, Piece piece);

  // Pieces that leave their queue: `pieces` are to be admitted, `dead` are not wanted any more.
  struct Taken {
    std::vector<Piece> pieces, dead;
  };
  // For a new run: the piece that goes first, and the pieces that may share its run. The run counts
  // as under way from now on. No pieces: all were dead, there is no run, and the queue is gone
  // unless it has another.
  Taken TakeForStart(Queue& queue, Pick pick, Clock::TimePoint now);
  // For a run of this load: the pieces that may join it and fit into `room` rows.
  Taken TakeForRun(Queue& queue, Pick pick, Joining joining, const Load& load, int64_t room,
                   Clock::TimePoint now);
  // Takes the pieces that are not wanted any more from all queues.
  std::vector<Piece> TakeDead(Clock::TimePoint now);

  // The queues in which pieces wait, and their snapshots in the same order. Void after the next
  // change of the set.
  struct View {
    std::vector<Queue*> queues;
    std::vector<QueueSnapshot> snapshots;
  };
  // `pace` tells how long before its deadline a piece must start.
  View Look(Pace pace);

  // A run of the queue has ended. The queue may be gone afterwards.
  void RunEnded(Queue& queue);

  // No row waits; a queue may still be there, for a run under way.
  bool empty() const { return rows_ == 0; }
  // Without bytes and MACs, which the loop counts until the answer.
  QueueDepth depth() const;

 private:
  using Entry = std::map<uint64_t, Piece>::iterator;
  void Insert(Queue& queue, Piece piece);
  Piece Remove(Queue& queue, Entry entry);
  // Of the client that was served least.
  Entry FirstOf(Queue& queue, Pick pick) const;
  void DropIfIdle(Queue& queue);

  const BatcherOptions& options_;
  std::list<Queue> queues_;
  int64_t requests_ = 0, rows_ = 0;  // waiting
  uint64_t next_key_ = 1, next_number_ = 1;
};

}  // namespace hyperserve
