// The decisions of the batcher, as pure functions of a snapshot: no lock, no clock, no I/O.
// Internal to this folder.
//
// A solver decides when it has no run, and after each turn of its run while other work wants a
// solver. The candidates are the runs that no other solver holds, and the queues that are ready.
//
//   Ready    If no run waits for a solver, every queue is ready. Else a queue waits for company
//            until it is full, its oldest row has waited queue_delay_max, a deadline would be
//            lost, or the batcher drains.
//   Order    The least predicted work until the next row finishes goes first. A candidate that
//            was passed over eight times as often as there are candidates goes before it.
//   Clients  Of several clients those go first that were served least, by whole turns; what follows
//            decides among what they have.
//   Company  Rows share a run if neither side is much shorter than the other, or if the rows that
//            join cost little beside the fixed cost of an evaluation. So a short request waits
//            neither for long rows nor for a run that is mostly overhead.
//   Places   live_runs_max bounds the runs in memory. Half of the places are for any work, the
//            others for brief work: at most a third of the longest run's work, a ninth if one of
//            these places is taken, and so on. No rows join a brief run later, so that it ends.
//   Passed   The first piece of a queue that was passed over may join any run of its key that
//            has room. If there is neither room nor a place, the queue closes a run (of its key,
//            else the one nearest its end): no rows join that run while the queue waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "server/batching/batcher_options.h"
#include "server/clock/clock.h"

namespace hyperserve {

// Rows that share evaluations of f.
struct Load {
  int64_t rows = 0;
  double evaluation_macs = 1;  // MACs of one evaluation on one row
  // Predicted evaluations of a row from its start to its end: the least and the most of these rows.
  double evaluations_least = 1, evaluations_most = 1;
};

// The cost of one evaluation of this many rows, in MACs: the fixed cost and that of the rows.
double EvaluationCost(int64_t rows, double evaluation_macs, const BatcherOptions& options);

// A side is much shorter than the other when it needs less than half of its evaluations.
inline constexpr double kMuchShorter = 2;

// May waiting rows join a run of the same spec? Does not check for room.
bool ShareARun(const Load& waiting, const Load& run, const BatcherOptions& options);

// A run that no other solver holds.
struct RunSnapshot {
  uint64_t key = 0;  // of its queue
  Load load;
  int64_t room = 0;        // rows that may join it
  double work = 0;         // predicted MACs until its next row finishes
  double work_to_end = 0;  // predicted MACs until its last row finishes, if no rows join it
  int64_t lead = 0;        // turns that its clients were served more than others: the least of them
  uint64_t served = 0;     // the turn in which it was last chosen
};

// The piece of a queue that could start a run or join one.
struct First {
  Load load;
  bool alone = false;  // true: it must not share a run
};

// A queue in which pieces wait.
struct QueueSnapshot {
  uint64_t key = 0;
  bool full = false;           // the waiting rows fill a run
  Clock::TimePoint oldest;     // when the oldest piece came
  Clock::TimePoint start_by;   // after this the first deadline would be lost
  uint64_t came = 0;           // the turn in which the oldest piece came
  int64_t lead = 0;            // as of a run
  First shortest, first_come;  // of the pieces whose client has this lead
};

// Draining is for good: no batcher opens again.
enum class Intake { kOpen, kDraining };

// The half of live_runs_max that a run counts against.
enum class Place { kAny, kBrief };

// The places that all runs take, also those that other solvers hold.
struct PlacesTaken {
  int64_t any = 0, brief = 0;
};

// Borrows both lists for the call.
struct BatchSnapshot {
  std::span<const RunSnapshot> runs;
  std::span<const QueueSnapshot> queues;
  PlacesTaken taken;
  Clock::TimePoint now;
  Intake intake = Intake::kOpen;
  uint64_t turn = 0;  // counts decisions
};

// Which piece of a queue goes first.
enum class Pick { kShortest, kFirstCome };

// Which waiting pieces may join the run that is served: those that ShareARun allows; before them
// the first piece of the queue, even if ShareARun does not allow it; none.
enum class Joining { kCompany, kFirstAndCompany, kNobody };

// At most one of `run` and `start` is set. Neither: there is nothing to do.
struct BatchDecision {
  std::optional<size_t> run;            // index of the run to go on with
  Joining joining = Joining::kCompany;  // for `run`: the pieces of its queue that join
  std::optional<size_t> start;          // index of the queue to start a run for
  Place place = Place::kAny;            // for `start`: of the new run
  Pick pick = Pick::kShortest;          // the piece of the queue that goes first, for both
  bool operator==(const BatchDecision&) const = default;
};

// Precondition: live_runs_max is at least two a solver, so that a solver without a run finds a
// place.
BatchDecision DecideBatch(const BatchSnapshot& snapshot, const BatcherOptions& options);

}  // namespace hyperserve
