// The decisions of the batcher, as pure functions of a snapshot: no lock, no clock, no I/O.
//
// A solver decides when it has no run, and after each turn of its run while others want one.
// Candidates are the runs that no other solver holds, and the queues that are ready.
//
//   Ready      a solver without a run finds every queue ready. While all are busy a queue waits for
//              company: until it is full, its oldest row has waited queue_delay_max, a deadline
//              would be lost, or the batcher drains.
//   Order      least predicted work until the next row finishes. A candidate that was passed over
//              eight times as often as there are candidates goes first, whatever its work.
//   Company    rows share a run where neither side is much shorter than the other, or where those
//              that join cost little beside what an evaluation costs anyway: so a short request is
//              held up neither by long rows nor by a run that is mostly overhead.
//   Places     live_runs_max bounds the runs in memory. Half of the places are for any work. The
//              others are for brief work: at most a third of the longest run's, a ninth where one
//              of these places is taken, and so on; what is shortest still finds one. Runs there
//              take nobody in later, so that they end.
//   Passed     first of a queue that was passed over joins any run of its key that has room.
//   Without over       room and place it closes a run: of its key, else the one nearest its end.
//   Nobody
//              joins that run while the queue waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "server/batching/batcher_options.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

// Rows that go through evaluations together.
struct Load {
  int64_t rows = 0;
  double evaluation_macs = 1;  // of one row
  // Predicted, of a row from its start to its end.
  double evaluations_least = 1, evaluations_most = 1;
};

// MACs of one evaluation of so many rows, and what it costs beside them.
double EvaluationCost(int64_t rows, double evaluation_macs, const BatcherOptions& options);

// A side is much shorter than the other when it needs less than half of its evaluations.
inline constexpr double kMuchShorter = 2;

// May rows that wait join a run? Both of one spec. Room is not looked at.
bool ShareARun(const Load& waiting, const Load& run, const BatcherOptions& options);

// A run that no other solver holds.
struct RunSnapshot {
  uint64_t key = 0;  // equal to its queue's
  Load load;
  int64_t room = 0;        // rows that it could take in
  double work = 0;         // MACs until its next row finishes
  double work_to_end = 0;  // until its last row does, if nobody joins it
  uint64_t served = 0;     // the turn in which it was last chosen
};

// The rows that could start a run or join one.
struct First {
  Load load;
  bool alone = false;  // may share with nobody
};

// A queue in which something waits.
struct QueueSnapshot {
  uint64_t key = 0;
  bool full = false;           // enough rows wait for a run
  Clock::TimePoint oldest;     // when the first of them came
  Clock::TimePoint start_by;   // when the first deadline would be lost
  uint64_t came = 0;           // the turn in which the oldest came
  First shortest, first_come;  // of its pieces
};

enum class Intake { kOpen, kDraining };

// Where a new run counts against live_runs_max.
enum class Place { kAny, kBrief };

// Places that are taken, by runs that other solvers hold too.
struct PlacesTaken {
  int64_t any = 0, brief = 0;
};

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

// Who may join the run that is served: what may share it; before that the first of the queue,
// whether it may or not; nobody.
enum class Joining { kCompany, kFirstAndCompany, kNobody };

// At most one of `run` and `start`; neither: nothing waits.
struct BatchDecision {
  std::optional<size_t> run;            // go on with it
  Joining joining = Joining::kCompany;  // of its queue
  std::optional<size_t> start;          // a new run of what waits in this queue
  Place place = Place::kAny;            // of the new run
  Pick pick = Pick::kShortest;          // who of the queue goes first, into either
  bool operator==(const BatchDecision&) const = default;
};

// Precondition: live_runs_max is at least two a solver, so that one without a run finds a place.
BatchDecision DecideBatch(const BatchSnapshot& snapshot, const BatcherOptions& options);

// A request at the door.
struct Arrival {
  int64_t rows = 0;
  int64_t bytes = 0;
  int64_t macs = 0;
  bool opens_queue = false;  // no queue of its key is live
};

// OK, or kResourceExhausted that names the limit and what stands against it.
absl::Status DecideAdmission(const QueueDepth& depth, const Arrival& arrival,
                             const BatcherOptions& options);

}  // namespace hyperserve
