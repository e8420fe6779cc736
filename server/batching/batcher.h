// Dynamic batching: requests wait in bounded queues, solver threads solve their rows in runs, and
// each request gets one callback.
//
//   Submit -> device -> queue of its spec -> run of an engine on one of its W solver threads ->
//   done
//
// An idle solver starts waiting work at once. Rows of one spec share the evaluations of a run; rows
// that come while it is under way may join it. Between two evaluations a run may give way to
// shorter work. Rows of different specs (model, generation, method, ...) never share. The answer to
// a request never depends on the rows that share its run. batch_policy.h decides which work goes
// first. Each device has queues, solvers and limits of its own; a request goes to the device with
// the least predicted work, and stays there.
#pragma once

#include <chrono>
#include <functional>
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
  // Starts the solver threads of each device. Runtimes, at least one, and `clock` must outlive the
  // batcher.
  Batcher(const BatcherOptions& options, const std::vector<DeviceRuntime*>& runtimes,
          const Clock* clock);
  ~Batcher();  // Drain(0), then joins the threads

  // Queues the work and returns; never waits for a solve. `done` is called exactly once, with no
  // lock held: before Submit returns where the work is refused, else later, on a solver thread or
  // on that of Drain.
  //
  // Refused with kResourceExhausted (a limit of the queues is reached), kDeadlineExceeded,
  // kCancelled, kInvalidArgument (no rows) or kUnavailable (draining, or the device is lost). Later
  // errors are kDeadlineExceeded, kCancelled, kUnavailable (Drain's limit passed) and those of the
  // engine.
  void Submit(Work work, WorkDone done);

  // Refuses new work from now on. Waits until the admitted work has finished or `limit` has passed,
  // then answers the rest kUnavailable. True: everything finished.
  bool Drain(std::chrono::milliseconds limit);

  // Calls the errand on each solver's thread, with its device, when that has nothing to solve: what
  // a library keeps for each thread can be made so. One thread at a time, so that the others serve.
  // Blocks until all have, two seconds a device at most; a solver that is never idle leaves it.
  // One caller at a time.
  void DoOnSolvers(const std::function<void(DeviceRuntime&)>& errand);

  // What waits and what is not answered yet, on all devices. Thread-safe, as all functions here.
  QueueDepth depth() const;

 private:
  const std::vector<DeviceRuntime*> runtimes_;
  std::vector<std::unique_ptr<BatchLoop>> loops_;  // one for each device
  std::vector<std::thread> threads_;
};

}  // namespace hyperserve
