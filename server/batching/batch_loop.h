// The steps of a solver, without its thread, so that a test can make them one by one. Holds the
// batcher's lock and all that it guards. Internal to this folder.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/engine/device_runtime.h"
#include "server/batching/admission.h"
#include "server/batching/batch_policy.h"
#include "server/batching/batcher_options.h"
#include "server/batching/client_ledger.h"
#include "server/batching/engine_pool.h"
#include "server/batching/errands.h"
#include "server/batching/live_run.h"
#include "server/batching/queue_set.h"
#include "server/batching/request.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

// Thread-safe. Requests are answered with no lock held.
class BatchLoop {
 public:
  // The state of one solver: the run that it holds. Belongs to one thread; the loop must outlive
  // it, and it stays in its place while its thread waits.
  class Seat {
    friend class BatchLoop;
    std::unique_ptr<LiveRun> run_;
    Clock::TimePoint turn_ends_;
    std::chrono::steady_clock::duration last_wait_{};  // until there was work
    std::condition_variable woken_;                    // WaitForWork waits on it
    // Guarded by the loop's lock:
    bool idle_ = false;
    bool asleep_ = false;
    uint64_t errand_ = 0;  // the last one
  };

  // `runtime` and `clock` must outlive the loop.
  BatchLoop(BatcherOptions options, DeviceRuntime* runtime, const Clock* clock);

  // As Batcher::Submit.
  void Submit(Work work, WorkDone done);

  // Answers the requests that the seat's last evaluation finished, decides what to solve if the
  // seat's turn is over, and makes one evaluation of f. Never waits for work. False: there is none.
  bool Step(Seat& seat);

  // Does an errand if there is one, and waits until there may be work. False: Stop was called and
  // no work is left. Of the seats that wait, work goes to the one that came last: its core and
  // caches are the warmest. One of them looks out for work for options.watch_max before it sleeps,
  // if work came as soon the last time and its thread keeps its core meanwhile.
  bool WaitForWork(Seat& seat);

  // Each of options.solvers seats does the errand in its WaitForWork, one after the other. Blocks
  // until all have, at most for `limit`: a solver that is never idle leaves it.
  void DoOnSeats(const std::function<void()>& errand, std::chrono::milliseconds limit);

  // As Batcher::Drain.
  bool Drain(std::chrono::milliseconds limit);
  void Stop();  // ends WaitForWork
  QueueDepth depth() const;

 private:
  using Steady = std::chrono::steady_clock;  // no clock of a test: a thread that spins is real

  // The result of a decision for a seat.
  struct Turn {
    std::unique_ptr<LiveRun> ended;  // the seat's last run; destroyed outside the lock
    bool idle = false;               // there is nothing to do
    Queue* start = nullptr;          // start a run for this queue, at this place
    Place place = Place::kAny;
    uint64_t number = 0;
    QueueSet::Taken taken;  // pieces to admit; pieces for which nobody waits
  };

  Admission Admit(const std::shared_ptr<PendingRequest>& request);
  void Settle(Seat& seat);
  Turn Choose(Seat& seat, Clock::TimePoint now);
  void BeginTurn(Seat& seat, Turn turn, Clock::TimePoint now);
  // The runtime could not start the turn's run.
  void Refuse(Turn turn, const absl::Status& status);
  // full_rows: the device had no memory for so many; 0: it had.
  void TryAgain(Queue& queue, std::vector<Piece> pieces, int64_t full_rows);
  // Answers all that waits, and all that will come, with the status.
  void LoseDevice(const absl::Status& status);
  void Finish(const std::shared_ptr<PendingRequest>& request, absl::StatusOr<WorkResult> result);

  // With the lock held:
  // Also sets what the ledger will count for the request.
  Admission Judge(PendingRequest& request) const;
  void Decide(Seat& seat, Clock::TimePoint now, Turn& turn);
  void RunEnded(Queue& queue, Place place);
  bool HasWork() const { return !queues_.empty() || !pool_.empty(); }
  // Called after every change of the queues, the runs and the idle seats.
  void LookAround();
  void Wake();  // the seat that fell asleep last; precondition: there is one
  void WakeAll();
  // Looks out for work until `until`, without the lock. Precondition: nobody else does.
  void Watch(std::unique_lock<std::mutex>& lock, Steady::time_point until);

  const BatcherOptions options_;
  const std::string device_;  // its name
  const Clock* const clock_;
  // True: other work wants a solver and none is idle. Written under the lock and read without it,
  // so that a run whose turn is over goes on without the lock where nothing else waits.
  std::atomic<bool> contended_{false};
  std::atomic<bool> watcher_called_{false};  // written under the lock, read by the seat in Watch

  mutable std::mutex mutex_;
  std::condition_variable live_changed_;  // Drain waits on it
  // All below guarded by mutex_.
  ClientLedger clients_;
  QueueSet queues_;
  EnginePool pool_;
  std::unordered_set<std::shared_ptr<PendingRequest>> live_;  // admitted, not answered
  int64_t live_bytes_ = 0, live_macs_ = 0;
  Intake intake_ = Intake::kOpen;
  absl::Status lost_;  // why the device answers no more
  bool stopping_ = false;
  int idle_ = 0;                    // seats
  std::vector<Seat*> asleep_;       // the one that came last is the last
  bool watched_ = false;            // a seat is in Watch
  Steady::time_point watch_again_;  // until then nobody is in Watch
  Errands errands_;
  uint64_t turn_ = 0;
  Clock::TimePoint next_sweep_;
};

}  // namespace hyperserve
