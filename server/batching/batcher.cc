#include "server/batching/batcher.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <future>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "core/base/status.h"
#include "server/batching/batch_policy.h"
#include "server/batching/batch_run.h"
#include "server/batching/request.h"

namespace hyperserve {
namespace {

// How late a deadline or a cancellation is noticed in a queue, beside what a turn takes.
constexpr std::chrono::milliseconds kSweepEvery{50};

bool SameQueue(const BatchSpec& a, Dtype a_dtype, const BatchSpec& b, Dtype b_dtype) {
  return a_dtype == b_dtype && a.model == b.model && a.correction == b.correction &&
         a.plan == b.plan && a.tier == b.tier && a.entry == b.entry && a.direction == b.direction &&
         a.span == b.span && a.save_at == b.save_at && a.max_steps == b.max_steps &&
         a.want_outputs == b.want_outputs && a.log_density == b.log_density;
}

// The work of one key: waiting pieces, and batches under way. Live while either is there.
struct Queue {
  BatchSpec spec;
  Dtype dtype = Dtype::kF32;
  int64_t batch_rows_max = 0;
  std::deque<Piece> waiting;
  int64_t rows = 0;                                // waiting
  int64_t under_way = 0;                           // batches, those that gave way among them
  std::deque<std::unique_ptr<BatchRun>> gave_way;  // batches that wait for their next turn
  uint64_t last_turn = 0;
};

}  // namespace

class Batcher::Impl {
 public:
  Impl(BatcherOptions options, EngineFactory factory, const Clock* clock)
      : options_(std::move(options)), make_engine_(std::move(factory)), clock_(clock) {}

  absl::Status StartThreads();
  void Submit(Work work, Done done);
  bool Drain(std::chrono::milliseconds limit);
  void Stop();
  Depth depth() const;

 private:
  // What a solver does next: a turn of a batch that gave way, or of a new one.
  struct Turn {
    Queue* queue = nullptr;         // null: no batch, only the dead
    std::unique_ptr<BatchRun> run;  // null: a new batch of `pieces`
    std::vector<Piece> pieces;
    std::vector<Piece> dead;  // nobody waits for these any more
  };

  void SolverLoop(std::unique_ptr<Engine> engine);
  std::optional<Turn> NextTurn();
  Turn TakeFrom(Queue& queue);
  // Takes out of the queues what nobody waits for any more; at most every kSweepEvery.
  std::vector<Piece> Sweep();
  void CountGone(Queue& queue, const Piece& piece);  // from among those that wait
  void DropIdleQueues();
  // A run of the turn's pieces, on an engine that no batch holds. Null where there is none to be
  // had: the pieces are answered then.
  std::unique_ptr<BatchRun> StartRun(Turn& turn);
  void GiveBack(std::unique_ptr<Engine> engine);
  // After a turn of a batch: over (null), or to be continued.
  void EndTurn(Queue* queue, std::unique_ptr<BatchRun> unfinished);
  absl::Status Admit(const std::shared_ptr<PendingRequest>& request);
  Queue* FindQueue(const Work& work);
  void Finish(const std::shared_ptr<PendingRequest>& request, absl::StatusOr<WorkResult> result);

  const BatcherOptions options_;
  const EngineFactory make_engine_;
  const Clock* const clock_;
  std::vector<std::thread> threads_;

  mutable std::mutex mutex_;
  std::condition_variable work_changed_;  // solvers wait for it
  std::condition_variable live_changed_;  // Drain waits for it
  // All below guarded by mutex_.
  std::list<Queue> queues_;
  std::vector<std::unique_ptr<Engine>> free_engines_;  // that no batch holds
  Depth depth_;
  std::unordered_set<std::shared_ptr<PendingRequest>> live_;  // admitted, not answered
  Intake intake_ = Intake::kOpen;
  bool stopping_ = false;
  uint64_t turn_ = 0;
  Clock::TimePoint next_sweep_;
};

absl::Status Batcher::Impl::StartThreads() {
  std::vector<std::future<absl::Status>> started;
  for (int i = 0; i < options_.solvers; ++i) {
    auto made = std::make_shared<std::promise<absl::Status>>();
    started.push_back(made->get_future());
    threads_.emplace_back([this, made] {
      absl::StatusOr<std::unique_ptr<Engine>> engine = make_engine_();
      const bool ok = engine.ok();
      made->set_value(engine.status());
      if (ok) SolverLoop(*std::move(engine));
    });
  }
  absl::Status first_error;
  for (std::future<absl::Status>& one : started) first_error.Update(one.get());
  return first_error;
}

Queue* Batcher::Impl::FindQueue(const Work& work) {
  for (Queue& queue : queues_) {
    if (SameQueue(queue.spec, queue.dtype, work.spec, work.segment.data.dtype)) return &queue;
  }
  return nullptr;
}

absl::Status Batcher::Impl::Admit(const std::shared_ptr<PendingRequest>& request) {
  const Work& work = request->work();
  const std::lock_guard lock(mutex_);
  if (intake_ == Intake::kDraining) {
    return absl::UnavailableError("the server is shutting down; try another one");
  }
  Queue* queue = FindQueue(work);
  HS_RETURN_IF_ERROR(DecideAdmission(depth_,
                                     {.rows = work.segment.rows,
                                      .bytes = work.bytes,
                                      .macs = work.macs,
                                      .opens_queue = queue == nullptr},
                                     options_));
  if (queue == nullptr) {
    queue = &queues_.emplace_back();
    queue->spec = work.spec;
    queue->dtype = work.segment.data.dtype;
    queue->batch_rows_max = work.batch_rows_max;
    queue->last_turn = turn_;
  }
  for (int64_t i = 0; i < request->piece_count(); ++i) {
    queue->waiting.push_back({.request = request, .index = i, .segment = request->PieceSegment(i)});
  }
  queue->rows += work.segment.rows;
  depth_.rows += work.segment.rows;
  depth_.bytes += work.bytes;
  depth_.macs += work.macs;
  ++depth_.requests;
  depth_.queues = static_cast<int64_t>(queues_.size());
  live_.insert(request);
  return absl::OkStatus();
}

void Batcher::Impl::Submit(Work work, Done done) {
  work.batch_rows_max = std::min(work.batch_rows_max, options_.batch_rows_max);
  const auto request =
      std::make_shared<PendingRequest>(std::move(work), std::move(done), clock_->Now());
  absl::Status status = request->work().segment.rows < 1
                            ? absl::InvalidArgumentError("a request needs at least one row")
                            : request->Death(request->arrival());
  if (status.ok()) status = Admit(request);
  if (!status.ok()) {
    request->Finish(status, {});
    return;
  }
  work_changed_.notify_one();
}

void Batcher::Impl::Finish(const std::shared_ptr<PendingRequest>& request,
                           absl::StatusOr<WorkResult> result) {
  if (!request->Finish(std::move(result), request->Times(clock_->Now()))) return;
  const std::lock_guard lock(mutex_);
  if (live_.erase(request) > 0) {
    depth_.bytes -= request->work().bytes;
    depth_.macs -= request->work().macs;
  }
  if (live_.empty()) live_changed_.notify_all();
}

Batcher::Impl::Turn Batcher::Impl::TakeFrom(Queue& queue) {
  queue.last_turn = ++turn_;
  if (!queue.gave_way.empty()) {
    Turn next{.queue = &queue, .run = std::move(queue.gave_way.front()), .pieces = {}, .dead = {}};
    queue.gave_way.pop_front();
    return next;
  }
  ++queue.under_way;
  Turn taken{.queue = &queue, .run = nullptr, .pieces = {}, .dead = {}};
  const Clock::TimePoint now = clock_->Now();
  int64_t rows = 0;
  while (!queue.waiting.empty()) {
    Piece& piece = queue.waiting.front();
    const bool alive = piece.request->Death(now).ok();
    if (alive && rows + piece.segment.rows > queue.batch_rows_max) break;
    if (alive) rows += piece.segment.rows;
    (alive ? taken.pieces : taken.dead).push_back(std::move(piece));
    queue.waiting.pop_front();
  }
  for (const std::vector<Piece>* gone : {&taken.pieces, &taken.dead}) {
    for (const Piece& piece : *gone) CountGone(queue, piece);
  }
  return taken;
}

void Batcher::Impl::CountGone(Queue& queue, const Piece& piece) {
  queue.rows -= piece.segment.rows;
  depth_.rows -= piece.segment.rows;
  if (piece.index + 1 == piece.request->piece_count()) --depth_.requests;
}

std::vector<Piece> Batcher::Impl::Sweep() {
  std::vector<Piece> dead;
  const Clock::TimePoint now = clock_->Now();
  if (now < next_sweep_) return dead;
  next_sweep_ = now + kSweepEvery;
  for (Queue& queue : queues_) {
    const auto gone =
        std::stable_partition(queue.waiting.begin(), queue.waiting.end(),
                              [&](const Piece& piece) { return piece.request->Death(now).ok(); });
    for (auto piece = gone; piece != queue.waiting.end(); ++piece) {
      CountGone(queue, *piece);
      dead.push_back(std::move(*piece));
    }
    queue.waiting.erase(gone, queue.waiting.end());
  }
  DropIdleQueues();
  return dead;
}

void Batcher::Impl::DropIdleQueues() {
  queues_.remove_if(
      [](const Queue& queue) { return queue.under_way == 0 && queue.waiting.empty(); });
  depth_.queues = static_cast<int64_t>(queues_.size());
}

std::optional<Batcher::Impl::Turn> Batcher::Impl::NextTurn() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (std::vector<Piece> dead = Sweep(); !dead.empty()) {
      work_changed_.notify_one();  // somebody must see to what is left
      return Turn{.dead = std::move(dead)};
    }
    std::vector<QueueSnapshot> snapshots;
    std::vector<Queue*> queues;
    for (Queue& queue : queues_) {
      // A key goes on with the batch that gave way before it begins another: no key has more than
      // one for each solver.
      const bool under_way = !queue.gave_way.empty();
      if (queue.waiting.empty() && !under_way) continue;
      snapshots.push_back(
          {.full = queue.rows >= queue.batch_rows_max,
           .oldest = under_way ? Clock::TimePoint() : queue.waiting.front().request->arrival(),
           .under_way = under_way,
           .last_turn = queue.last_turn});
      queues.push_back(&queue);
    }
    if (snapshots.empty() && stopping_) return std::nullopt;
    const BatchDecision decision = DecideBatch(snapshots, clock_->Now(), intake_, options_);
    if (decision.serve) {
      Turn taken = TakeFrom(*queues[*decision.serve]);
      // Somebody must see to what is left while this thread solves.
      if (depth_.rows > 0 || snapshots.size() > 1) work_changed_.notify_one();
      return taken;
    }
    if (decision.look_again) {
      clock_->WaitUntil(lock, work_changed_, std::min(*decision.look_again, next_sweep_));
    } else {
      work_changed_.wait(lock);
    }
  }
}

std::unique_ptr<BatchRun> Batcher::Impl::StartRun(Turn& turn) {
  std::unique_ptr<Engine> engine;
  {
    const std::lock_guard lock(mutex_);
    if (!free_engines_.empty()) {
      engine = std::move(free_engines_.back());
      free_engines_.pop_back();
    }
  }
  if (engine == nullptr) {  // the batches that gave way hold all others
    absl::StatusOr<std::unique_ptr<Engine>> made = make_engine_();
    if (!made.ok()) {
      for (const Piece& piece : turn.pieces) Finish(piece.request, made.status());
      return nullptr;
    }
    engine = *std::move(made);
  }
  return std::make_unique<BatchRun>(
      options_, clock_, std::move(engine), turn.queue->spec, std::move(turn.pieces),
      [this](const std::shared_ptr<PendingRequest>& request, absl::StatusOr<WorkResult> result) {
        Finish(request, std::move(result));
      });
}

void Batcher::Impl::EndTurn(Queue* queue, std::unique_ptr<BatchRun> unfinished) {
  const std::lock_guard lock(mutex_);
  if (unfinished != nullptr) {
    queue->gave_way.push_back(std::move(unfinished));
    return;
  }
  --queue->under_way;
  DropIdleQueues();
}

void Batcher::Impl::GiveBack(std::unique_ptr<Engine> engine) {
  const std::lock_guard lock(mutex_);
  // Those beyond were made for batches that gave way; their memory goes with them.
  if (static_cast<int>(free_engines_.size()) < options_.solvers) {
    free_engines_.push_back(std::move(engine));
  }
}

void Batcher::Impl::SolverLoop(std::unique_ptr<Engine> engine) {
  GiveBack(std::move(engine));
  while (std::optional<Turn> turn = NextTurn()) {
    const Clock::TimePoint now = clock_->Now();
    for (const Piece& piece : turn->dead) Finish(piece.request, piece.request->Death(now));
    std::unique_ptr<BatchRun> run = std::move(turn->run);
    if (run == nullptr && !turn->pieces.empty()) run = StartRun(*turn);
    if (run != nullptr && run->TakeTurn()) {
      GiveBack(run->TakeEngine());
      run = nullptr;
    }
    if (turn->queue != nullptr) EndTurn(turn->queue, std::move(run));
  }
}

bool Batcher::Impl::Drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  intake_ = Intake::kDraining;
  work_changed_.notify_all();
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

void Batcher::Impl::Stop() {
  Drain(std::chrono::milliseconds(0));
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Batcher::Depth Batcher::Impl::depth() const {
  const std::lock_guard lock(mutex_);
  return depth_;
}

absl::StatusOr<std::unique_ptr<Batcher>> Batcher::Start(BatcherOptions options,
                                                        EngineFactory factory, const Clock* clock) {
  std::unique_ptr<Batcher> batcher(
      new Batcher(std::make_unique<Impl>(std::move(options), std::move(factory), clock)));
  HS_RETURN_IF_ERROR(batcher->impl_->StartThreads());
  return batcher;
}

Batcher::Batcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Batcher::~Batcher() { impl_->Stop(); }

void Batcher::Submit(Work work, Done done) { impl_->Submit(std::move(work), std::move(done)); }
bool Batcher::Drain(std::chrono::milliseconds limit) { return impl_->Drain(limit); }
Batcher::Depth Batcher::depth() const { return impl_->depth(); }

}  // namespace hyperserve
