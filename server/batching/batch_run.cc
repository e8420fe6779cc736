#include "server/batching/batch_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/status.h"
#include "server/batching/scatter.h"

namespace hyperserve {

BatchRun::BatchRun(const BatcherOptions& options, const Clock* clock, Engine* engine, Finish finish)
    : options_(options), clock_(clock), engine_(engine), finish_(std::move(finish)) {}

void BatchRun::Solve(const BatchSpec& spec, std::vector<Piece> pieces) {
  const Clock::TimePoint started = clock_->Now();
  absl::StatusOr<BatchResult> result = RunEngine(spec, pieces);
  FinishDead(pieces);
  if (result.ok()) {
    Scatter(*std::move(result), pieces, started);
  } else if (pieces.size() == 1) {
    finish_(pieces.front().request, result.status());
  } else {
    for (Piece& piece : pieces) {
      if (!piece.request->Death(clock_->Now()).ok()) continue;
      std::vector<Piece> alone;
      alone.push_back(std::move(piece));
      Solve(spec, std::move(alone));
    }
  }
}

absl::StatusOr<BatchResult> BatchRun::RunEngine(const BatchSpec& spec,
                                                const std::vector<Piece>& pieces) {
  Batch batch{.spec = spec, .segments = {}};
  for (const Piece& piece : pieces) batch.segments.push_back(piece.segment);
  HS_RETURN_IF_ERROR(engine_->Begin(batch));
  for (;;) {
    FinishDead(pieces);
    HS_ASSIGN_OR_RETURN(const bool finished,
                        engine_->Advance(options_.advance_steps, [&] { return AllDead(pieces); }));
    if (finished) return engine_->TakeFinished();
  }
}

void BatchRun::Scatter(BatchResult result, const std::vector<Piece>& pieces,
                       Clock::TimePoint started) {
  const Clock::TimePoint ended = clock_->Now();
  const auto total = static_cast<int64_t>(result.status.size());
  if (options_.on_batch) {
    const Work& work = pieces.front().request->work();
    options_.on_batch({.model_label = work.model_label,
                       .plan_label = work.plan_label,
                       .requests = static_cast<int64_t>(pieces.size()),
                       .rows = total});
  }
  int64_t begin = 0;
  for (const Piece& piece : pieces) {
    const int64_t rows = piece.segment.rows;
    WorkResult part{.rows = rows == total ? std::move(result) : RowsOf(result, begin, rows),
                    .engine = std::string(engine_->name()),
                    .device = std::string(engine_->device())};
    begin += rows;
    std::optional<WorkResult> whole =
        piece.request->Accept(piece.index, std::move(part), started, ended);
    if (whole) finish_(piece.request, *std::move(whole));
  }
}

void BatchRun::FinishDead(const std::vector<Piece>& pieces) {
  const Clock::TimePoint now = clock_->Now();
  for (const Piece& piece : pieces) {
    const absl::Status death = piece.request->Death(now);
    if (!death.ok()) finish_(piece.request, death);
  }
}

bool BatchRun::AllDead(const std::vector<Piece>& pieces) const {
  const Clock::TimePoint now = clock_->Now();
  return std::all_of(pieces.begin(), pieces.end(),
                     [&](const Piece& piece) { return !piece.request->Death(now).ok(); });
}

}  // namespace hyperserve
