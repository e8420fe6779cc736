// One solver thread's way with a batch: begin, advance while somebody waits, scatter. Touched only
// by its own thread. Internal to this folder.
#pragma once

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

  BatchRun(const BatcherOptions& options, const Clock* clock, Engine* engine, Finish finish);

  // Every piece is answered or handed to its request when this returns. A batch that an engine
  // refuses is tried again piece by piece: what one request asks cannot fail another.
  void Solve(const BatchSpec& spec, std::vector<Piece> pieces);

 private:
  absl::StatusOr<BatchResult> RunEngine(const BatchSpec& spec, const std::vector<Piece>& pieces);
  void Scatter(BatchResult result, const std::vector<Piece>& pieces, Clock::TimePoint started);
  // Answers the requests for which nobody waits any more; the others go on.
  void FinishDead(const std::vector<Piece>& pieces);
  bool AllDead(const std::vector<Piece>& pieces) const;

  const BatcherOptions& options_;
  const Clock* const clock_;
  Engine* const engine_;
  const Finish finish_;
};

}  // namespace hyperserve
