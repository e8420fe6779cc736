// A batch on its way through an engine: begin, advance while somebody waits, scatter. Touched by
// one solver thread at a time. Internal to this folder.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/batching/request.h"

namespace hyperserve {

class BatchRun {
 public:
  // Answers a request (the first answer counts).
  using Finish =
      std::function<void(const std::shared_ptr<PendingRequest>&, absl::StatusOr<WorkResult>)>;

  // At least one piece, all of `spec`. `options`, `clock` and `spec` must outlive this.
  BatchRun(const BatcherOptions& options, const Clock* clock, std::unique_ptr<Engine> engine,
           const BatchSpec& spec, std::vector<Piece> pieces, Finish finish);

  // Goes on until the batch is over or its turn (turn_max). True when it is over: every piece is
  // answered or handed to its request. A batch that an engine refuses is tried again piece by
  // piece: what one request asks cannot fail another.
  bool TakeTurn();

  // Precondition: TakeTurn returned true.
  std::unique_ptr<Engine> TakeEngine() { return std::move(engine_); }

 private:
  // Begins or advances the first group; true when it is solved.
  absl::StatusOr<bool> Step();
  void Fail(const absl::Status& status);
  void Scatter(BatchResult result);
  // Answers the requests for which nobody waits any more; the others go on.
  void FinishDead();
  bool AllDead() const;
  const std::vector<Piece>& pieces() const { return groups_.front(); }

  const BatcherOptions& options_;
  const Clock* const clock_;
  std::unique_ptr<Engine> engine_;
  const BatchSpec& spec_;
  const Finish finish_;
  std::deque<std::vector<Piece>> groups_;  // that the engine solves together, the first one now
  bool begun_ = false;                     // the engine holds the first group
  int64_t turns_ = 0;                      // that it took or is taking
};

}  // namespace hyperserve
