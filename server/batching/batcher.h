// Dynamic batching by plan: bounded queues in, batches on solver threads, one callback a request
// out. Thread-safe.
//
//   Submit -> queue of its BatchKey -> batch (full, overdue or draining) -> Engine on one of W
//   solver threads -> done
//
// A batch never mixes generations, models or plans. Answers of a request never depend on what
// shares its batch. A batch that takes long gives way: after its turn (turn_max) every other key
// that waits has one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/engine.h"
#include "server/clock/clock.h"
#include "server/clock/patience.h"

namespace hyperserve {

// One request's work. `spec` decides which queue it waits in: two requests share a batch where
// everything in it is equal.
struct Work {
  BatchSpec spec;
  Segment segment;
  std::shared_ptr<const void> keep_alive;  // owns what segment.data points to, and the pinned model
  Patience patience;                       // honoured at admission, at dequeue and between launches
  int64_t bytes = 0;  // of inputs and outputs, counted until the request is answered
  int64_t macs = 0;   // predicted for all rows, counted likewise
  int64_t batch_rows_max = 1LL << 62;  // of a batch of this spec, where fewer than the options say
  // What metrics call this work (bounded sets); the same for all work of equal `spec`.
  std::string model_label, plan_label;
};

// A request's part of a batch's results.
struct WorkResult {
  BatchResult rows;  // this request's rows only
  std::string engine;
  std::string engine_reason;  // why this engine, in words
  std::string device;
};

// Where a request's time went, whatever its answer.
struct WorkTimes {
  std::optional<double> queue_seconds;  // from admission to its first batch, or to an earlier
                                        // answer; none: not admitted
  std::optional<double> solve_seconds;  // from then to the answer; none: no batch began
};

// One batch that left an engine, for metrics.
struct BatchReport {
  std::string model_label, plan_label;
  int64_t requests = 0;  // pieces of requests
  int64_t rows = 0;      // padding not counted
  int64_t turns = 0;     // above 1: it gave way to others
};

struct BatcherOptions {
  int64_t batch_rows_max = 256;                     // rows of one batch
  std::chrono::microseconds queue_delay_max{2000};  // how long the oldest row may wait for company
  int64_t queue_rows_max = 16384;                   // rows waiting in all queues
  int64_t queue_bytes_max = 256 << 20;              // bytes of what is not answered yet
  int64_t pending_macs_max = 1LL << 62;             // predicted MACs of what is not answered yet
  int64_t live_queues_max = 64;                     // distinct keys waiting or running
  int solvers = 1;                                  // threads, an engine each
  int advance_steps = 1;                   // steps between two looks at deadlines and cancellation
  std::chrono::milliseconds turn_max{50};  // a batch solves this long, then others have a turn
  std::function<void(const BatchReport&)> on_batch;  // on a solver thread; may be empty
};

class Batcher {
 public:
  using Done = std::function<void(absl::StatusOr<WorkResult>, const WorkTimes&)>;
  using EngineFactory = std::function<absl::StatusOr<std::unique_ptr<Engine>>()>;

  // Starts the threads; each makes its own engine by calling the factory.
  static absl::StatusOr<std::unique_ptr<Batcher>> Start(BatcherOptions options,
                                                        EngineFactory factory, const Clock* clock);
  ~Batcher();  // as Drain(0)

  // `done` is called exactly once: at once with an error where the work is refused
  // (kResourceExhausted: queues full; kDeadlineExceeded, kCancelled, kUnavailable: draining), else
  // later on a solver thread.
  void Submit(Work work, Done done);

  // No new work; waits until what was admitted has finished or `limit` has passed, then fails the
  // rest kUnavailable. True when everything finished.
  bool Drain(std::chrono::milliseconds limit);

  struct Depth {
    int64_t requests = 0, rows = 0, queues = 0;  // waiting
    int64_t bytes = 0, macs = 0;                 // of requests that are not answered yet
  };
  Depth depth() const;

 private:
  class Impl;
  explicit Batcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hyperserve
