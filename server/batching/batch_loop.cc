#include "server/batching/batch_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/status.h"
#include "core/engine/device_runtime.h"
#include "server/batching/batch_policy.h"
#include "server/batching/batcher_options.h"
#include "server/batching/live_run.h"
#include "server/batching/request.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {
namespace {

// How late a deadline or a cancellation is noticed in a queue, beside what a turn takes.
constexpr std::chrono::milliseconds kSweepEvery{50};

// A client is ahead of another when it was served this many turns more: below that the shortest
// work of all goes first.
constexpr int kLeadTurns = 4;

// A thread that looks out and sees no time for so long had no core: the machine has none to spare,
// and whoever waits for that thread waits long. Then nobody looks out for a while.
constexpr std::chrono::microseconds kCoreLost{100};
constexpr std::chrono::seconds kCoreLostRest{1};

// Leaves the core's other thread its units while this one looks out.
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A solver without a run must find a place, also when all others hold one.
BatcherOptions WithPlaces(BatcherOptions options) {
  options.live_runs_max = std::max(options.live_runs_max, int64_t{2} * options.solvers);
  return options;
}

}  // namespace

BatchLoop::BatchLoop(BatcherOptions options, DeviceRuntime* runtime, const Clock* clock)
    : options_(WithPlaces(std::move(options))),
      device_(runtime->device()),
      clock_(clock),
      queues_(options_),
      pool_(options_, runtime) {}

Admission BatchLoop::Judge(PendingRequest& request) const {
  const Work& work = request.work();
  const Queue* const queue = queues_.Find(work.spec);
  const auto rows = static_cast<double>(work.segment.rows);
  const auto rows_max = static_cast<double>(work.batch_rows_max);
  // Where its queue has company the rows pay their part of an evaluation's fixed cost.
  const double share = queue == nullptr ? static_cast<double>(request.piece_count())
                                        : rows / std::max(rows_max, 1.0);
  const double own =
      work.evaluations * (rows * work.evaluation_macs + share * options_.evaluation_macs_fixed);
  const ClientAccount& client = *request.counted.client;
  request.counted.cost = own;
  request.counted.size =
      work.evaluations * EvaluationCost(std::min(work.segment.rows, work.batch_rows_max),
                                        work.evaluation_macs, options_);
  QueueDepth all = queues_.depth();
  all.bytes = live_bytes_;
  all.macs = live_macs_;
  Arrival arrival{.rows = work.segment.rows,
                  .bytes = work.bytes,
                  .macs = work.macs,
                  .opens_queue = queue == nullptr,
                  .cost = own};
  if (work.patience.deadline != Clock::TimePoint::max()) {
    arrival.seconds_left =
        std::chrono::duration<double>(work.patience.deadline - request.arrival()).count();
  }
  return DecideAdmission({.all = all,
                          .own = client.held,
                          .own_live = client.live,
                          .sharers = clients_.Sharers(client),
                          .cost_before = clients_.CostBefore(client, request.counted.size, own),
                          .pace = pool_.pace(),
                          .idle_solver = idle_ > 0 && queues_.empty()},
                         arrival, options_);
}

Admission BatchLoop::Admit(const std::shared_ptr<PendingRequest>& request) {
  const Work& work = request->work();
  const std::lock_guard lock(mutex_);
  if (intake_ == Intake::kDraining) {
    return {.status = absl::UnavailableError("the server is shutting down; try another one")};
  }
  if (!lost_.ok()) return {.status = lost_};
  request->counted.client = clients_.Enter(work.client, request->arrival());
  Admission admission = Judge(*request);
  if (!admission.status.ok()) return admission;
  clients_.Begin(*request->counted.client, work, request->counted.size, request->counted.cost);
  queues_.Add(request, turn_);
  live_bytes_ += work.bytes;
  live_macs_ += work.macs;
  live_.insert(request);
  LookAround();
  return admission;
}

void BatchLoop::Submit(Work work, WorkDone done) {
  work.batch_rows_max = std::min(work.batch_rows_max, options_.batch_rows_max);
  const auto request =
      std::make_shared<PendingRequest>(std::move(work), std::move(done), clock_->Now());
  Admission admission{.status = request->work().segment.rows < 1
                                    ? absl::InvalidArgumentError("a request needs at least one row")
                                    : request->Death(request->arrival())};
  if (admission.status.ok()) admission = Admit(request);
  if (!admission.status.ok()) {
    request->Finish(admission.status, {.retry_after = admission.retry_after});
  }
}

void BatchLoop::Finish(const std::shared_ptr<PendingRequest>& request,
                       absl::StatusOr<WorkResult> result) {
  if (!request->Finish(std::move(result), request->Times(clock_->Now()))) return;
  const std::lock_guard lock(mutex_);
  if (live_.erase(request) > 0) {
    live_bytes_ -= request->work().bytes;
    live_macs_ -= request->work().macs;
    ClientAccount& client = *request->counted.client;
    clients_.Charge(client, request->TakeSpent());
    clients_.End(client, request->work(), request->counted.size, request->counted.cost);
  }
  if (live_.empty()) live_changed_.notify_all();
}

bool BatchLoop::Step(Seat& seat) {
  if (seat.run_ != nullptr) Settle(seat);
  const Clock::TimePoint now = clock_->Now();  // after the answers, which take time
  const bool turn_over = now >= seat.turn_ends_;
  if (seat.run_ == nullptr || seat.run_->empty() || (turn_over && contended_)) {
    Turn turn = Choose(seat, now);
    const bool idle = turn.idle;
    BeginTurn(seat, std::move(turn), now);
    if (idle) return false;
  } else if (turn_over) {
    seat.turn_ends_ = now + options_.turn_max;
  }
  if (seat.run_ != nullptr && !seat.run_->empty()) seat.run_->Evaluate(*clock_, now);
  return true;
}

void BatchLoop::Settle(Seat& seat) {
  if (seat.run_->empty()) return;
  LiveRun::Settled settled = seat.run_->Settle(*clock_);
  if (!settled.again.empty() || settled.full_rows > 0) {
    TryAgain(*seat.run_->origin().queue, std::move(settled.again), settled.full_rows);
  }
  for (LiveRun::Ended& ended : settled.ended) {
    const std::shared_ptr<PendingRequest>& request = ended.piece.request;
    if (!ended.rows.ok()) {
      if (absl::IsUnavailable(ended.rows.status())) LoseDevice(ended.rows.status());
      Finish(request, ended.rows.status());
      continue;
    }
    if (options_.on_batch) options_.on_batch(ended.report);
    std::optional<WorkResult> whole =
        request->Accept(ended.piece.index, seat.run_->ResultOf(*std::move(ended.rows)));
    if (whole) Finish(request, *std::move(whole));
  }
}

BatchLoop::Turn BatchLoop::Choose(Seat& seat, Clock::TimePoint now) {
  Turn turn;
  const std::lock_guard lock(mutex_);
  if (seat.run_ != nullptr) {
    pool_.Measure(*seat.run_);
    seat.run_->Charge(clients_);
    if (seat.run_->empty()) {
      turn.ended = std::move(seat.run_);
      RunEnded(*turn.ended->origin().queue, turn.ended->origin().place);
    }
  }
  if (now >= next_sweep_) {
    next_sweep_ = now + kSweepEvery;
    turn.taken.dead = queues_.TakeDead(now);
  }
  Decide(seat, now, turn);
  if (turn.idle != seat.idle_) {
    idle_ += turn.idle ? 1 : -1;
    seat.idle_ = turn.idle;
  }
  LookAround();
  return turn;
}

void BatchLoop::Decide(Seat& seat, Clock::TimePoint now, Turn& turn) {
  const LiveRun* const own = seat.run_.get();
  if (own != nullptr) pool_.GiveWay(std::move(seat.run_));
  clients_.Rank(kLeadTurns * options_.turn_max);
  const std::vector<RunSnapshot> runs = pool_.Look();
  const QueueSet::View waiting = queues_.Look(pool_.pace());
  turn.number = ++turn_;
  const BatchDecision decision = DecideBatch({.runs = runs,
                                              .queues = waiting.snapshots,
                                              .taken = pool_.taken(),
                                              .now = now,
                                              .intake = intake_,
                                              .turn = turn_},
                                             options_);
  QueueSet::Taken taken;
  if (decision.run) {
    seat.run_ = pool_.Take(*decision.run);
    seat.run_->served = turn_;
    if (seat.run_.get() != own) seat.run_->BeginTurn();
    taken = queues_.TakeForRun(*seat.run_->origin().queue, decision.pick, decision.joining,
                               seat.run_->load(), seat.run_->room(), now);
  } else if (decision.start) {
    Queue* const queue = waiting.queues[*decision.start];
    taken = queues_.TakeForStart(*queue, decision.pick, now);
    if (!taken.pieces.empty()) {
      turn.start = queue;
      turn.place = decision.place;
      pool_.Reserve(decision.place);
    }
  } else {
    turn.idle = true;
  }
  turn.taken.pieces = std::move(taken.pieces);
  std::ranges::move(taken.dead, std::back_inserter(turn.taken.dead));
}

void BatchLoop::BeginTurn(Seat& seat, Turn turn, Clock::TimePoint now) {
  turn.ended.reset();
  for (const Piece& piece : turn.taken.dead) Finish(piece.request, piece.request->Death(now));
  if (turn.start != nullptr) {
    int64_t rows = 0;
    for (const Piece& piece : turn.taken.pieces) rows += NextPart(piece).rows;
    absl::StatusOr<std::unique_ptr<LiveRun>> run = pool_.Start(turn.start, turn.place, rows);
    if (!run.ok()) {
      Refuse(std::move(turn), run.status());
      return;
    }
    seat.run_ = *std::move(run);
    seat.run_->served = turn.number;
  }
  for (Piece& piece : turn.taken.pieces) {
    const std::shared_ptr<PendingRequest> request = piece.request;
    const absl::Status admitted = seat.run_->Admit(std::move(piece), now);
    if (!admitted.ok()) Finish(request, admitted);
  }
  seat.turn_ends_ = now + options_.turn_max;
}

void BatchLoop::Refuse(Turn turn, const absl::Status& status) {
  const bool shared = turn.taken.pieces.size() > 1;
  std::vector<Piece> again;
  int64_t rows = 0;
  if (absl::IsUnavailable(status)) LoseDevice(status);
  for (Piece& piece : turn.taken.pieces) {
    rows += NextPart(piece).rows;
    if (MayTryAgain(status, shared, piece)) {
      again.push_back(std::move(piece));
    } else {
      Finish(piece.request, status);
    }
  }
  TryAgain(*turn.start, std::move(again), absl::IsResourceExhausted(status) ? rows : 0);
  const std::lock_guard lock(mutex_);
  RunEnded(*turn.start, turn.place);
}

void BatchLoop::TryAgain(Queue& queue, std::vector<Piece> pieces, int64_t full_rows) {
  if (full_rows > 0 && options_.on_device_full) options_.on_device_full(device_, full_rows);
  const std::lock_guard lock(mutex_);
  if (full_rows > 1) queue.batch_rows_max = std::min(queue.batch_rows_max, full_rows / 2);
  for (Piece& piece : pieces) queues_.PutBack(queue, std::move(piece));
  LookAround();
}

void BatchLoop::LoseDevice(const absl::Status& status) {
  std::unordered_set<std::shared_ptr<PendingRequest>> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (!lost_.ok()) return;
    lost_ = status;
    waiting = live_;
  }
  for (const std::shared_ptr<PendingRequest>& request : waiting) Finish(request, status);
  if (options_.on_device_lost) options_.on_device_lost(device_, status);
}

void BatchLoop::RunEnded(Queue& queue, Place place) {
  pool_.Release(place);
  queues_.RunEnded(queue);
}

void BatchLoop::LookAround() {
  contended_ = idle_ == 0 && HasWork();
  if (idle_ == 0 || !HasWork()) return;
  // A second change finds the one that looks out called already, and calls another too.
  const bool calls_watcher = watched_ && !watcher_called_.exchange(true);
  if (!calls_watcher && !asleep_.empty()) Wake();
}

void BatchLoop::Wake() {
  Seat& seat = *asleep_.back();
  asleep_.pop_back();
  seat.asleep_ = false;
  seat.woken_.notify_one();
}

void BatchLoop::Watch(std::unique_lock<std::mutex>& lock, Steady::time_point until) {
  watched_ = true;
  watcher_called_ = false;
  lock.unlock();
  Steady::time_point now = Steady::now();
  bool lost_core = false;
  while (!watcher_called_ && now < until && !lost_core) {
    Pause();
    const Steady::time_point before = std::exchange(now, Steady::now());
    lost_core = now - before > kCoreLost;
  }
  lock.lock();
  watched_ = false;
  if (lost_core) watch_again_ = now + kCoreLostRest;
}

void BatchLoop::WakeAll() {
  watcher_called_ = true;
  while (!asleep_.empty()) Wake();
}

bool BatchLoop::WaitForWork(Seat& seat) {
  const auto idle = [&] { return !stopping_ && !HasWork() && !errands_.Awaits(seat.errand_); };
  std::unique_lock lock(mutex_);
  if (!HasWork() && errands_.Awaits(seat.errand_)) {
    errands_.Do(lock, seat.errand_);
    WakeAll();  // it is the next one's turn
  }
  const Steady::time_point came = Steady::now();
  const bool soon = seat.last_wait_ < options_.watch_max;
  if (idle() && soon && !watched_ && came >= watch_again_) Watch(lock, came + options_.watch_max);
  while (idle()) {
    asleep_.push_back(&seat);
    seat.asleep_ = true;
    seat.woken_.wait(lock, [&seat] { return !seat.asleep_; });
  }
  seat.last_wait_ = Steady::now() - came;
  return !stopping_ || HasWork();
}

void BatchLoop::DoOnSeats(const std::function<void()>& errand, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (stopping_) return;
  WakeAll();
  errands_.Give(lock, errand, options_.solvers, Steady::now() + limit);
}

bool BatchLoop::Drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  intake_ = Intake::kDraining;
  const Clock::TimePoint until = clock_->Now() + limit;
  while (!live_.empty() && clock_->Now() < until) clock_->WaitUntil(lock, live_changed_, until);
  if (live_.empty()) return true;
  const auto rest = live_;
  lock.unlock();
  for (const std::shared_ptr<PendingRequest>& request : rest) {
    Finish(request, absl::UnavailableError(
                        "the server shut down before this request was finished; try another one"));
  }
  lock.lock();
  live_changed_.wait(lock, [this] { return live_.empty(); });
  return false;
}

void BatchLoop::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  errands_.Stop();
  WakeAll();
}

QueueDepth BatchLoop::depth() const {
  const std::lock_guard lock(mutex_);
  QueueDepth depth = queues_.depth();
  depth.bytes = live_bytes_;
  depth.macs = live_macs_;
  return depth;
}

}  // namespace hyperserve
