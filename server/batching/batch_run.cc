#include "server/batching/batch_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/status.h"
#include "server/batching/scatter.h"

namespace hyperserve {

BatchRun::BatchRun(const BatcherOptions& options, const Clock* clock,
                   std::unique_ptr<Engine> engine, const BatchSpec& spec, std::vector<Piece> pieces,
                   Finish finish)
    : options_(options),
      clock_(clock),
      engine_(std::move(engine)),
      spec_(spec),
      finish_(std::move(finish)) {
  groups_.push_back(std::move(pieces));
}

bool BatchRun::TakeTurn() {
  const Clock::TimePoint until = clock_->Now() + options_.turn_max;
  ++turns_;
  do {
    absl::StatusOr<bool> solved = Step();
    if (!solved.ok()) {
      Fail(solved.status());
    } else if (*solved) {
      absl::StatusOr<BatchResult> result = engine_->TakeFinished();
      FinishDead();
      if (result.ok()) {
        Scatter(*std::move(result));
      } else {
        Fail(result.status());
      }
    }
  } while (!groups_.empty() && clock_->Now() < until);
  return groups_.empty();
}

absl::StatusOr<bool> BatchRun::Step() {
  if (!begun_) {
    Batch batch{.spec = spec_, .segments = {}};
    for (const Piece& piece : pieces()) {
      piece.request->Begin(clock_->Now());
      batch.segments.push_back(piece.segment);
    }
    HS_RETURN_IF_ERROR(engine_->Begin(batch));
    begun_ = true;
  }
  FinishDead();
  return engine_->Advance(options_.advance_steps, [this] { return AllDead(); });
}

void BatchRun::Fail(const absl::Status& status) {
  FinishDead();
  std::vector<Piece> refused = std::move(groups_.front());
  groups_.pop_front();
  begun_ = false;
  if (refused.size() == 1) {
    finish_(refused.front().request, status);
    return;
  }
  for (Piece& piece : refused) {
    if (!piece.request->Death(clock_->Now()).ok()) continue;
    groups_.emplace_back().push_back(std::move(piece));
  }
}

void BatchRun::Scatter(BatchResult result) {
  const std::vector<Piece> pieces = std::move(groups_.front());
  groups_.pop_front();
  begun_ = false;
  const auto total = static_cast<int64_t>(result.status.size());
  if (options_.on_batch) {
    const Work& work = pieces.front().request->work();
    options_.on_batch({.model_label = work.model_label,
                       .plan_label = work.plan_label,
                       .requests = static_cast<int64_t>(pieces.size()),
                       .rows = total,
                       .turns = turns_});
  }
  const auto deliver = [&](const Piece& piece, BatchResult rows) {
    std::optional<WorkResult> whole =
        piece.request->Accept(piece.index, {.rows = std::move(rows),
                                            .engine = std::string(engine_->name()),
                                            .device = std::string(engine_->device())});
    if (whole) finish_(piece.request, *std::move(whole));
  };
  if (pieces.size() == 1) {
    deliver(pieces.front(), std::move(result));
    return;
  }
  int64_t begin = 0;
  for (const Piece& piece : pieces) {
    deliver(piece, RowsOf(result, begin, piece.segment.rows));
    begin += piece.segment.rows;
  }
}

void BatchRun::FinishDead() {
  const Clock::TimePoint now = clock_->Now();
  for (const Piece& piece : pieces()) {
    const absl::Status death = piece.request->Death(now);
    if (!death.ok()) finish_(piece.request, death);
  }
}

bool BatchRun::AllDead() const {
  const Clock::TimePoint now = clock_->Now();
  return std::all_of(pieces().begin(), pieces().end(),
                     [&](const Piece& piece) { return !piece.request->Death(now).ok(); });
}

}  // namespace hyperserve
