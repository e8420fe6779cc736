#include "server/batching/batch_policy.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hyperserve {
namespace {

// Sharing is cheap for the shorter side when its evaluations cost at most a quarter more.
constexpr double kCheap = 1.25;
// Work is brief beside runs that need four times as much.
constexpr double kBrief = 4;
// How often a candidate is passed over, in turns for each candidate.
constexpr uint64_t kPassedOver = 8;

struct Candidate {
  double work = 0;
  uint64_t since = 0;        // served, or came
  Clock::TimePoint waiting;  // since when; of runs: they gave way last
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
  double least = 0;
  if (!snapshot.runs.empty()) {
    least = std::ranges::min(snapshot.runs, {}, &RunSnapshot::work).work;
  }
  if (kBrief * work <= least && snapshot.taken.brief < brief_places) return Place::kBrief;
  if (snapshot.taken.any < any_places) return Place::kAny;
  return std::nullopt;
}

// What serving this piece of the queue means: a run that it joins, or one of its own. None: every
// place is taken.
std::optional<BatchDecision> Serve(size_t index, Pick pick, const BatchSnapshot& snapshot,
                                   const BatcherOptions& options) {
  const QueueSnapshot& queue = snapshot.queues[index];
  const First& first = pick == Pick::kShortest ? queue.shortest : queue.first_come;
  for (size_t i = 0; i < snapshot.runs.size() && !first.alone; ++i) {
    const RunSnapshot& run = snapshot.runs[i];
    if (run.key == queue.key && run.room >= first.load.rows &&
        ShareARun(first.load, run.load, options)) {
      return BatchDecision{.run = i, .pick = pick};
    }
  }
  const std::optional<Place> place = FindPlace(WorkOf(first.load, options), snapshot, options);
  if (!place) return std::nullopt;
  return BatchDecision{.start = index, .pick = pick, .place = *place};
}

// What could be done now. Each candidate twice: by what it offers at the least work, and by what
// has waited longest.
struct Candidates {
  std::vector<Candidate> by_work, by_wait;
};

Candidates FindCandidates(const BatchSnapshot& snapshot, const BatcherOptions& options) {
  Candidates found;
  for (size_t i = 0; i < snapshot.runs.size(); ++i) {
    const RunSnapshot& run = snapshot.runs[i];
    found.by_work.push_back({.work = run.work,
                             .since = run.served,
                             .waiting = Clock::TimePoint::max(),
                             .decision = {.run = i}});
  }
  found.by_wait = found.by_work;
  for (size_t i = 0; i < snapshot.queues.size(); ++i) {
    const QueueSnapshot& queue = snapshot.queues[i];
    if (!Ready(queue, snapshot, options)) continue;
    Candidate candidate{
        .work = WorkOf(queue.shortest.load, options), .since = queue.came, .waiting = queue.oldest};
    if (const auto serve = Serve(i, Pick::kShortest, snapshot, options)) {
      candidate.decision = *serve;
      found.by_work.push_back(candidate);
    }
    if (const auto serve = Serve(i, Pick::kFirstCome, snapshot, options)) {
      candidate.decision = *serve;
      found.by_wait.push_back(candidate);
    }
  }
  return found;
}

}  // namespace

double EvaluationCost(int64_t rows, double evaluation_macs, const BatcherOptions& options) {
  return options.evaluation_macs_fixed + static_cast<double>(rows) * evaluation_macs;
}

bool ShareARun(const Load& waiting, const Load& run, const BatcherOptions& options) {
  const auto dearer = [&](int64_t rows) {
    return EvaluationCost(waiting.rows + run.rows, run.evaluation_macs, options) >
           kCheap * EvaluationCost(rows, run.evaluation_macs, options);
  };
  const bool joins_longer = kMuchShorter * waiting.evaluations_most < run.evaluations_most;
  const bool joins_shorter = waiting.evaluations_most > kMuchShorter * run.evaluations_least;
  return !(joins_longer && dearer(waiting.rows)) && !(joins_shorter && dearer(run.rows));
}

BatchDecision DecideBatch(const BatchSnapshot& snapshot, const BatcherOptions& options) {
  const Candidates found = FindCandidates(snapshot, options);
  const auto longest = std::ranges::min_element(
      found.by_wait, {}, [](const Candidate& one) { return std::tie(one.since, one.waiting); });
  const uint64_t patience = kPassedOver * (snapshot.runs.size() + snapshot.queues.size());
  if (longest != found.by_wait.end() && snapshot.turn > longest->since + patience) {
    return longest->decision;
  }
  const auto least = std::ranges::min_element(found.by_work, {}, [](const Candidate& one) {
    return std::tie(one.work, one.since, one.waiting);
  });
  return least == found.by_work.end() ? BatchDecision{} : least->decision;
}

absl::Status DecideAdmission(const QueueDepth& depth, const Arrival& arrival,
                             const BatcherOptions& options) {
  if (depth.rows + arrival.rows > options.queue_rows_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queues are full: ", depth.rows, " rows wait, ", arrival.rows,
                     " more would pass queue_rows_max = ", options.queue_rows_max, "; try again"));
  }
  if (depth.bytes + arrival.bytes > options.queue_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too much is pending: ", depth.bytes, " bytes of inputs and outputs, ", arrival.bytes,
        " more would pass queue_bytes_max = ", options.queue_bytes_max, "; try again"));
  }
  if (depth.macs + arrival.macs > options.pending_macs_max) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "too much work is pending: about %.2g MACs, %.2g more would pass pending_macs_max = %.2g; "
        "try again",
        static_cast<double>(depth.macs), static_cast<double>(arrival.macs),
        static_cast<double>(options.pending_macs_max)));
  }
  if (arrival.opens_queue && depth.queues >= options.live_queues_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too many different plans at once: live_queues_max = ", options.live_queues_max,
        " are waiting or running; try again"));
  }
  return absl::OkStatus();
}

}  // namespace hyperserve
