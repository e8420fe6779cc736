// A run of an engine and the pieces in it. Not thread-safe: it belongs to the solver that holds it,
// or, while it has given way, to the thread that holds the batcher's lock. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "server/batching/batch_policy.h"
#include "server/batching/batcher_options.h"
#include "server/batching/client_ledger.h"
#include "server/batching/queue_set.h"
#include "server/batching/request.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

// EnginePool makes it. Its queue stays while the run is there, since it counts the run as under
// way.
class LiveRun {
 public:
  // Where the run came from; fixed for its life.
  struct Origin {
    Queue* queue;  // outlives the run
    Place place;
    std::string device;
  };
  // `options` must outlive the run.
  LiveRun(const BatcherOptions& options, Origin origin, DeviceRuntime::StartedRun started);

  const Origin& origin() const { return origin_; }
  bool empty() const { return pieces_.empty(); }
  // Rows that may still join it; 0 in a place for brief work, and where its piece must be alone.
  int64_t room() const;
  Load load() const;
  // Predicted MACs until the next row finishes, and until the last one does. A piece that has made
  // more evaluations than predicted is taken to need an eighth of them once more.
  double work() const;
  double work_to_end() const;

  // Adds the rows of the piece; they take part from their next step on. An error is the engine's
  // and concerns this piece only: the others go on. Precondition: room() is enough, or the run is
  // empty.
  absl::Status Admit(Piece piece, Clock::TimePoint now);

  // Makes one evaluation of f, unless no piece is wanted any more. Settle returns the outcome.
  void Evaluate(const Clock& clock, Clock::TimePoint now);

  // A piece that has left the run.
  struct Ended {
    Piece piece;
    absl::StatusOr<BatchResult> rows;  // an error: why there are none
    BatchReport report;                // set where there are rows
  };
  // What the loop must do after an evaluation; nothing in it is in the run any more.
  struct Settled {
    std::vector<Ended> ended;
    std::vector<Piece> again;  // the run failed while they shared it, or the device was full
    int64_t full_rows = 0;     // the device had no memory for so many; 0: it had
  };
  // Call it once after each evaluation. Takes out the pieces that have finished or are not wanted
  // any more. After a failure of the engine no piece stays. One that was alone ends with the error;
  // the others are returned in `again`, to be tried alone, so that one request cannot fail another.
  // Where the device was full, a piece of more than one row is tried again in halves.
  Settled Settle(const Clock& clock);

  // Books the time of its pieces to their clients. With the batcher's lock held, as lead().
  void Charge(const ClientLedger& clients) const;
  // The least lead of the clients that have a piece in it.
  int64_t lead() const;

  // Counts a turn: the run gave way and goes on now.
  void BeginTurn() { ++totals_.turns; }

  // The rows with the names of engine and device.
  WorkResult ResultOf(BatchResult rows) const;

  // The work since the last call, and the time that it took.
  struct Spent {
    double macs = 0, seconds = 0;
  };
  // For EnginePool, which measures the pace by it.
  Spent TakeSpent() { return std::exchange(spent_, {}); }

  uint64_t served = 0;  // the turn in which it was last chosen

 private:
  // Sums over all evaluations. The figures of a piece are the differences over its stay.
  struct Totals {
    int64_t evaluations = 0;
    int64_t rows = 0, pieces = 0;  // summed over evaluations
    int64_t turns = 0;
  };
  struct Inside {
    Piece piece;
    Ticket ticket;
    int64_t rows;  // of the part that the engine has
    Totals at_admission;
  };
  double EvaluationsLeft(const Inside& inside) const;
  BatchReport Report(const Inside& inside) const;
  // Adds the evaluations that an engine made beyond one a call.
  void BookWhole(const Inside& inside, const BatchResult& rows);
  // Keeps the rows that have finished, and gives the engine the next part of the piece, if any is
  // left: else inside.rows is 0. Fails as Run::Admit does.
  absl::Status TakePart(Inside& inside, BatchResult rows);
  Settled Fail(const absl::Status& status, Clock::TimePoint now);

  const BatcherOptions& options_;
  const Origin origin_;
  const EngineChoice choice_;
  const std::unique_ptr<Run> run_;
  std::vector<Inside> pieces_;
  int64_t rows_ = 0;
  Totals totals_{.turns = 1};
  Spent spent_;
  absl::Status evaluated_;
  Clock::TimePoint evaluation_began_;
};

}  // namespace hyperserve
