// Dynamic batching: bounded queues in, runs on solver threads, one callback a request out.
//
//   Submit -> queue of its spec -> run of an engine on one of W solver threads -> done
//
// An idle solver starts at once. Rows of one spec share the evaluations of a run, also those that
// come while it is under way; between two evaluations a run may give way to shorter work. Rows of
// different generations, models or methods never share. Answers of a request never depend on what
// shares its run. Which work goes first: batch_policy.h.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "core/engine/device_runtime.h"
#include "server/batching/batcher_options.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

class BatchLoop;

// Thread-safe.
class Batcher {
 public:
  // Starts the threads. `runtime` and `clock` must outlive this.
  Batcher(BatcherOptions options, DeviceRuntime* runtime, const Clock* clock);
  ~Batcher();  // as Drain(0)

  // `done` is called exactly once, outside all locks: at once with an error where the work is
  // refused (kResourceExhausted: queues full; kDeadlineExceeded, kCancelled, kInvalidArgument: no
  // rows, kUnavailable: draining), else later on a solver thread. What the engine says to rows that
  // it refuses is passed on.
  void Submit(Work work, WorkDone done);

  // No new work; waits until what was admitted has finished or `limit` has passed, then fails the
  // rest kUnavailable. True when everything finished.
  bool Drain(std::chrono::milliseconds limit);

  QueueDepth depth() const;

 private:
  const std::unique_ptr<BatchLoop> loop_;
  std::vector<std::thread> threads_;
};

}  // namespace hyperserve
