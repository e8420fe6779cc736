#include "server/batching/queue_set.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "core/engine/batch_spec.h"
#include "server/batching/batcher_options.h"
#include "server/batching/client_ledger.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {
namespace {

// What a solve needs beside its evaluations to be in time: the turn of somebody else, the reply.
constexpr std::chrono::milliseconds kStartMargin{2};

// How many pieces that do not fit are looked at for a run, in search of those that do.
constexpr int kMissesMax = 64;

double EvaluationsOf(const Piece& piece) { return piece.request->work().evaluations; }

Load LoadOf(const Piece& piece) {
  return {.rows = piece.segment.rows,
          .evaluation_macs = piece.request->work().evaluation_macs,
          .evaluations_least = EvaluationsOf(piece),
          .evaluations_most = EvaluationsOf(piece)};
}

First FirstFrom(const Piece& piece) { return {.load = LoadOf(piece), .alone = piece.alone}; }

Load Together(const Load& load, const Piece& piece) {
  Load both = load;
  both.rows += piece.segment.rows;
  both.evaluations_least = std::min(load.evaluations_least, EvaluationsOf(piece));
  both.evaluations_most = std::max(load.evaluations_most, EvaluationsOf(piece));
  return both;
}

// At most `most` pieces of the queue by number: those of the client that was served least first, of
// each client in the order of length, from `least` evaluations on.
std::vector<uint64_t> InOrder(const Queue& queue, double least, size_t most) {
  std::vector<std::pair<const ClientAccount*, const Queue::Line*>> lines;
  for (const auto& [client, line] : queue.lines) lines.emplace_back(client, &line);
  std::ranges::stable_sort(lines, {}, [](const auto& line) { return line.first->served; });
  std::vector<uint64_t> numbers;
  for (const auto& [client, line] : lines) {
    auto next = line->by_evaluations.lower_bound({least, 0});
    for (; numbers.size() < most && next != line->by_evaluations.end(); ++next) {
      numbers.push_back(next->second);
    }
  }
  return numbers;
}

// When the solve must start to end before the deadline.
Clock::TimePoint StartBy(const Piece& piece, Pace pace, const BatcherOptions& options) {
  const Work& work = piece.request->work();
  if (work.patience.deadline == Clock::TimePoint::max()) return Clock::TimePoint::max();
  const double seconds =
      pace * work.evaluations * EvaluationCost(piece.segment.rows, work.evaluation_macs, options);
  // No deadline is a day away, and no prediction longer means more.
  return work.patience.deadline - kStartMargin -
         std::chrono::nanoseconds(
             static_cast<int64_t>(std::ceil(std::min(seconds, 86400.0) * 1e9)));
}

}  // namespace

Queue* QueueSet::Find(const BatchSpec& spec) {
  const auto found = std::ranges::find(queues_, spec, &Queue::spec);
  return found == queues_.end() ? nullptr : &*found;
}

const Queue* QueueSet::Find(const BatchSpec& spec) const {
  const auto found = std::ranges::find(queues_, spec, &Queue::spec);
  return found == queues_.end() ? nullptr : &*found;
}

void QueueSet::Add(const std::shared_ptr<PendingRequest>& request, uint64_t turn) {
  const Work& work = request->work();
  Queue* queue = Find(work.spec);
  if (queue == nullptr) {
    queue = &queues_.emplace_back(Queue{.key = next_key_++,
                                        .spec = work.spec,
                                        .batch_rows_max = work.batch_rows_max,
                                        .opened_by = request->counted.client});
    ++queue->opened_by->held.queues;
  }
  for (int64_t i = 0; i < request->piece_count(); ++i) {
    Insert(*queue, {.request = request,
                    .index = i,
                    .segment = request->PieceSegment(i),
                    .came = turn,
                    .number = next_number_++});
  }
}

void QueueSet::PutBack(Queue& queue, Piece piece) { Insert(queue, std::move(piece)); }

void QueueSet::Insert(Queue& queue, Piece piece) {
  queue.rows += piece.segment.rows;
  rows_ += piece.segment.rows;
  ClientAccount* const client = piece.request->counted.client.get();
  client->held.rows += piece.segment.rows;
  if (piece.request->waiting_pieces_++ == 0) ++requests_;
  Queue::Line& line = queue.lines[client];
  line.numbers.insert(piece.number);
  line.by_evaluations.emplace(EvaluationsOf(piece), piece.number);
  const uint64_t number = piece.number;
  queue.waiting.emplace(number, std::move(piece));
}

Piece QueueSet::Remove(Queue& queue, Entry entry) {
  Piece piece = std::move(entry->second);
  queue.waiting.erase(entry);
  ClientAccount* const client = piece.request->counted.client.get();
  client->held.rows -= piece.segment.rows;
  const auto line = queue.lines.find(client);
  line->second.numbers.erase(piece.number);
  line->second.by_evaluations.erase({EvaluationsOf(piece), piece.number});
  if (line->second.numbers.empty()) queue.lines.erase(line);
  queue.rows -= piece.segment.rows;
  rows_ -= piece.segment.rows;
  if (--piece.request->waiting_pieces_ == 0) --requests_;
  return piece;
}

QueueSet::Entry QueueSet::FirstOf(Queue& queue, Pick pick) const {
  const auto& [client, line] =
      *std::ranges::min_element(queue.lines, {}, [](const auto& one) { return one.first->served; });
  return queue.waiting.find(pick == Pick::kFirstCome ? *line.numbers.begin()
                                                     : line.by_evaluations.begin()->second);
}

QueueSet::Taken QueueSet::TakeForStart(Queue& queue, Pick pick, Clock::TimePoint now) {
  std::vector<Piece> dead;
  while (!queue.waiting.empty()) {
    Piece first = Remove(queue, FirstOf(queue, pick));
    if (!first.request->Death(now).ok()) {
      dead.push_back(std::move(first));
      continue;
    }
    Taken taken;
    if (!first.alone) {
      const int64_t room = queue.batch_rows_max - first.segment.rows;
      taken = TakeForRun(queue, pick, Joining::kCompany, LoadOf(first), room, now);
    }
    taken.pieces.insert(taken.pieces.begin(), std::move(first));
    taken.dead.insert(taken.dead.end(), dead.begin(), dead.end());
    ++queue.runs;
    return taken;
  }
  DropIfIdle(queue);
  return {.pieces = {}, .dead = std::move(dead)};
}

QueueSet::Taken QueueSet::TakeForRun(Queue& queue, Pick pick, Joining joining, const Load& load,
                                     int64_t room, Clock::TimePoint now) {
  Taken taken;
  if (joining == Joining::kNobody || queue.waiting.empty()) return taken;
  Load together = load;
  // False: the piece stays.
  const auto take = [&](Entry entry, Joining how) {
    const Piece& piece = entry->second;
    const int64_t rows = piece.segment.rows;
    if (!piece.request->Death(now).ok()) {
      taken.dead.push_back(Remove(queue, entry));
    } else if (!piece.alone && rows <= room &&
               (how == Joining::kFirstAndCompany || ShareARun(LoadOf(piece), together, options_))) {
      room -= rows;
      together = Together(together, piece);
      taken.pieces.push_back(Remove(queue, entry));
    } else {
      return false;
    }
    return true;
  };
  if (room > 0) take(FirstOf(queue, pick), joining);
  // In the order of length, from the shortest that may join.
  const Load shortest{.rows = 1,
                      .evaluation_macs = load.evaluation_macs,
                      .evaluations_least = 0,
                      .evaluations_most = 0};
  const double from =
      ShareARun(shortest, load, options_) ? 0 : load.evaluations_most / kMuchShorter;
  int misses = 0;
  for (const uint64_t number : InOrder(queue, from, static_cast<size_t>(room) + kMissesMax)) {
    if (room <= 0 || misses >= kMissesMax) break;
    if (!take(queue.waiting.find(number), Joining::kCompany)) ++misses;
  }
  return taken;
}

std::vector<Piece> QueueSet::TakeDead(Clock::TimePoint now) {
  std::vector<Piece> dead;
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    for (auto entry = queue->waiting.begin(); entry != queue->waiting.end();) {
      const auto here = entry++;
      if (!here->second.request->Death(now).ok()) dead.push_back(Remove(*queue, here));
    }
    const auto here = queue++;
    DropIfIdle(*here);
  }
  return dead;
}

QueueSet::View QueueSet::Look(Pace pace) {
  View view;
  for (Queue& queue : queues_) {
    if (queue.waiting.empty()) continue;
    const Piece& oldest = FirstOf(queue, Pick::kFirstCome)->second;
    QueueSnapshot snapshot{.key = queue.key,
                           .full = queue.rows >= queue.batch_rows_max,
                           .oldest = oldest.request->arrival(),
                           .start_by = Clock::TimePoint::max(),
                           .came = oldest.came,
                           .lead = oldest.request->counted.client->lead,
                           .shortest = FirstFrom(FirstOf(queue, Pick::kShortest)->second),
                           .first_come = FirstFrom(oldest)};
    // A full queue is ready without it, and may be long.
    for (auto at = queue.waiting.begin(); at != queue.waiting.end() && !snapshot.full; ++at) {
      snapshot.start_by = std::min(snapshot.start_by, StartBy(at->second, pace, options_));
    }
    view.queues.push_back(&queue);
    view.snapshots.push_back(snapshot);
  }
  return view;
}

void QueueSet::RunEnded(Queue& queue) {
  --queue.runs;
  DropIfIdle(queue);
}

void QueueSet::DropIfIdle(Queue& queue) {
  if (queue.runs > 0 || !queue.waiting.empty()) return;
  --queue.opened_by->held.queues;
  queues_.remove_if([&](const Queue& one) { return &one == &queue; });
}

QueueDepth QueueSet::depth() const {
  return {.requests = requests_, .rows = rows_, .queues = static_cast<int64_t>(queues_.size())};
}

}  // namespace hyperserve
