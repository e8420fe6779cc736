// The decisions of the batcher, as pure functions of a snapshot: no lock, no clock, no I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "server/batching/batcher.h"

namespace hyperserve {

// One queue with something in it, or a batch that gave way to others.
struct QueueSnapshot {
  bool full = false;        // enough rows wait for a batch
  Clock::TimePoint oldest;  // when the first of them came
  bool under_way = false;   // a batch that gave way: ready at any time
  // The turn in which the queue was last served; for a new one the turn in which it came, so that a
  // key that comes and goes cannot overtake one that waits.
  uint64_t last_turn = 0;
};

enum class Intake { kOpen, kDraining };

// What to do now: serve a queue, or look again later (at once when something comes).
struct BatchDecision {
  std::optional<size_t> serve;                 // index into the snapshots
  std::optional<Clock::TimePoint> look_again;  // when the next queue is overdue
  bool operator==(const BatchDecision&) const = default;
};

// A queue is ready when it is full, overdue (queue_delay_max) or draining. Of those that are ready
// the one that was served longest ago goes first, then the one that has waited longest, those that
// gave way last: a key waits for at most one turn of each other key.
BatchDecision DecideBatch(std::span<const QueueSnapshot> queues, Clock::TimePoint now,
                          Intake intake, const BatcherOptions& options);

// A request at the door.
struct Arrival {
  int64_t rows = 0;
  int64_t bytes = 0;
  int64_t macs = 0;
  bool opens_queue = false;  // no queue of its key is live
};

// OK, or kResourceExhausted that names the limit and what stands against it.
absl::Status DecideAdmission(const Batcher::Depth& depth, const Arrival& arrival,
                             const BatcherOptions& options);

}  // namespace hyperserve
