#include "server/batching/batch_policy.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace hyperserve {
namespace {

// Rows cost little when their MACs are less than this share of what an evaluation costs beside
// them.
constexpr double kLittle = 0.25;
// Work is brief when it is this much less than the longest, for each place for brief work that is
// taken once more.
constexpr double kBrief = 3;
// How often a candidate is passed over, in turns for each candidate.
constexpr uint64_t kPassedOver = 8;

struct Candidate {
  double work = 0;
  uint64_t since = 0;        // served, or came
  Clock::TimePoint waiting;  // since when; of runs: they gave way last
  int64_t lead = 0;          // of its clients
  BatchDecision decision;
};

double WorkOf(const Load& load, const BatcherOptions& options) {
  return load.evaluations_least * EvaluationCost(load.rows, load.evaluation_macs, options);
}

bool Ready(const QueueSnapshot& queue, const BatchSnapshot& snapshot,
           const BatcherOptions& options) {
  return snapshot.runs.empty() || snapshot.intake == Intake::kDraining || queue.full ||
         snapshot.now >= std::min(queue.oldest + options.queue_delay_max, queue.start_by);
}

std::optional<Place> FindPlace(double work, const BatchSnapshot& snapshot,
                               const BatcherOptions& options) {
  const int64_t brief_places = options.live_runs_max / 2;
  const int64_t any_places = options.live_runs_max - brief_places;
  const int64_t brief = snapshot.taken.brief;
  double longest = 0;
  for (const RunSnapshot& run : snapshot.runs) longest = std::max(longest, run.work_to_end);
  const double brief_work = longest / std::pow(kBrief, 1 + static_cast<double>(brief));
  if (work <= brief_work && brief < brief_places) return Place::kBrief;
  if (snapshot.taken.any < any_places) return Place::kAny;
  return std::nullopt;
}

enum class Hurry { kNone, kPassedOver };

// What serving this piece of the queue means: a run that it joins, or one of its own. None: it must
// wait for a place or for room.
std::optional<BatchDecision> Serve(size_t index, Pick pick, Hurry hurry,
                                   const BatchSnapshot& snapshot, const BatcherOptions& options) {
  const QueueSnapshot& queue = snapshot.queues[index];
  const First& first = pick == Pick::kShortest ? queue.shortest : queue.first_come;
  std::optional<size_t> fits;
  for (size_t i = 0; i < snapshot.runs.size() && !first.alone; ++i) {
    const RunSnapshot& run = snapshot.runs[i];
    if (run.key != queue.key || run.room < first.load.rows) continue;
    if (ShareARun(first.load, run.load, options)) return BatchDecision{.run = i, .pick = pick};
    fits = i;
  }
  if (const auto place = FindPlace(WorkOf(first.load, options), snapshot, options)) {
    return BatchDecision{.start = index, .place = *place, .pick = pick};
  }
  if (hurry == Hurry::kNone || !fits) return std::nullopt;
  return BatchDecision{.run = fits, .joining = Joining::kFirstAndCompany, .pick = pick};
}

// The run that a queue waits for which was passed over: of its key, else the one nearest its end.
std::optional<size_t> RunToClose(const QueueSnapshot& queue, std::span<const RunSnapshot> runs) {
  std::optional<size_t> close;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto precedence = [&](const RunSnapshot& run) {
      return std::pair(run.key != queue.key, run.work_to_end);
    };
    if (!close || precedence(runs[i]) < precedence(runs[*close])) close = i;
  }
  return close;
}

// What could be done now. Each queue twice: by what it offers at the least work, and by what has
// waited longest.
struct Candidates {
  std::vector<Candidate> by_work, by_wait;
  std::vector<size_t> closed;  // runs that nobody joins
};

Candidates FindCandidates(const BatchSnapshot& snapshot, uint64_t patience,
                          const BatcherOptions& options) {
  Candidates found;
  for (size_t i = 0; i < snapshot.runs.size(); ++i) {
    const RunSnapshot& run = snapshot.runs[i];
    found.by_work.push_back({.work = run.work,
                             .since = run.served,
                             .waiting = Clock::TimePoint::max(),
                             .lead = run.lead,
                             .decision = {.run = i}});
  }
  found.by_wait = found.by_work;
  for (size_t i = 0; i < snapshot.queues.size(); ++i) {
    const QueueSnapshot& queue = snapshot.queues[i];
    if (!Ready(queue, snapshot, options)) continue;
    Candidate candidate{.work = WorkOf(queue.shortest.load, options),
                        .since = queue.came,
                        .waiting = queue.oldest,
                        .lead = queue.lead};
    if (const auto serve = Serve(i, Pick::kShortest, Hurry::kNone, snapshot, options)) {
      candidate.decision = *serve;
      found.by_work.push_back(candidate);
    }
    const bool passed_over = snapshot.turn > queue.came + patience;
    if (!passed_over) continue;
    if (const auto serve = Serve(i, Pick::kFirstCome, Hurry::kPassedOver, snapshot, options)) {
      candidate.decision = *serve;
      found.by_wait.push_back(candidate);
    } else if (const auto close = RunToClose(queue, snapshot.runs)) {
      found.closed.push_back(*close);
    }
  }
  return found;
}

}  // namespace

double EvaluationCost(int64_t rows, double evaluation_macs, const BatcherOptions& options) {
  return options.evaluation_macs_fixed + static_cast<double>(rows) * evaluation_macs;
}

bool ShareARun(const Load& waiting, const Load& run, const BatcherOptions& options) {
  const bool alike = kMuchShorter * waiting.evaluations_most >= run.evaluations_most &&
                     waiting.evaluations_most <= kMuchShorter * run.evaluations_least;
  const double own = static_cast<double>(waiting.rows) * waiting.evaluation_macs;
  return alike || own < kLittle * options.evaluation_macs_fixed;
}

BatchDecision DecideBatch(const BatchSnapshot& snapshot, const BatcherOptions& options) {
  const uint64_t patience = kPassedOver * (snapshot.runs.size() + snapshot.queues.size());
  const Candidates found = FindCandidates(snapshot, patience, options);
  const auto longest = std::ranges::min_element(found.by_wait, {}, [](const Candidate& one) {
    return std::tie(one.lead, one.since, one.waiting);
  });
  const auto least = std::ranges::min_element(found.by_work, {}, [](const Candidate& one) {
    return std::tie(one.lead, one.work, one.since, one.waiting);
  });
  const bool passed_over = longest != found.by_wait.end() &&
                           (least == found.by_work.end() || longest->lead <= least->lead) &&
                           snapshot.turn > longest->since + patience;
  BatchDecision decision;
  if (passed_over) {
    decision = longest->decision;
  } else if (least != found.by_work.end()) {
    decision = least->decision;
  }
  if (decision.run && std::ranges::count(found.closed, *decision.run) > 0) {
    decision.joining = Joining::kNobody;
  }
  return decision;
}

}  // namespace hyperserve
