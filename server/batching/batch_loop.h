// What a solver does, step by step: it never waits, and needs no thread to be tried out. The
// batcher's lock is in here. Internal to this folder.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "core/engine/device_runtime.h"
#include "server/batching/batch_policy.h"
#include "server/batching/batcher_options.h"
#include "server/batching/engine_pool.h"
#include "server/batching/live_run.h"
#include "server/batching/queue_set.h"
#include "server/batching/request.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

// Thread-safe. Answers are given outside the lock.
class BatchLoop {
 public:
  // A solver's place: the run that it holds. Belongs to one thread.
  class Seat {
    friend class BatchLoop;
    std::unique_ptr<LiveRun> run_;
    Clock::TimePoint turn_ends_;
    bool idle_ = false;  // guarded by the loop's lock
  };

  // `runtime` and `clock` must outlive this.
  BatchLoop(BatcherOptions options, DeviceRuntime* runtime, const Clock* clock);

  // As Batcher::Submit.
  void Submit(Work work, WorkDone done);

  // Answers what the seat's last evaluation brought, chooses a run where its turn is over, and
  // makes one evaluation. False: there is nothing to do.
  bool Step(Seat& seat);

  // Until there may be something to do; false: after Stop, when nothing is left.
  bool WaitForWork();

  // As Batcher::Drain.
  bool Drain(std::chrono::milliseconds limit);
  void Stop();
  QueueDepth depth() const;

 private:
  // What a decision gives a seat.
  struct Turn {
    std::unique_ptr<LiveRun> ended;  // the seat's last run; destroyed outside the lock
    bool idle = false;               // nothing to do
    Queue* start = nullptr;          // a new run is to be made for this queue, at this place
    Place place = Place::kAny;
    uint64_t number = 0;
    QueueSet::Taken taken;  // pieces to admit; pieces for which nobody waits
  };

  absl::Status Admit(const std::shared_ptr<PendingRequest>& request);
  void Settle(Seat& seat, Clock::TimePoint now);
  Turn Choose(Seat& seat, Clock::TimePoint now);
  void BeginTurn(Seat& seat, Turn turn, Clock::TimePoint now);
  // The turn's run could not be made.
  void Refuse(Turn turn, const absl::Status& status, Clock::TimePoint now);
  void TryAgain(Queue& queue, std::vector<Piece> pieces);
  void Finish(const std::shared_ptr<PendingRequest>& request, absl::StatusOr<WorkResult> result);

  // With the lock held:
  void Decide(Seat& seat, Clock::TimePoint now, Turn& turn);
  void RunEnded(Queue& queue, Place place);
  bool HasWork() const { return !queues_.empty() || !pool_.empty(); }
  // After every change of what waits and who is idle.
  void LookAround();

  const BatcherOptions options_;
  const Clock* const clock_;
  // Others want a solver, and none is idle: written under the lock, read without it, so that a run
  // without company goes on at the cost of one look.
  std::atomic<bool> contended_{false};

  mutable std::mutex mutex_;
  std::condition_variable work_changed_;  // solvers wait for it
  std::condition_variable live_changed_;  // Drain waits for it
  // All below guarded by mutex_.
  QueueSet queues_;
  EnginePool pool_;
  std::unordered_set<std::shared_ptr<PendingRequest>> live_;  // admitted, not answered
  int64_t live_bytes_ = 0, live_macs_ = 0;
  Intake intake_ = Intake::kOpen;
  bool stopping_ = false;
  int idle_ = 0;  // seats
  uint64_t turn_ = 0;
  Clock::TimePoint next_sweep_;
};

}  // namespace hyperserve
