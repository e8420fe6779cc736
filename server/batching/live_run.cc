#include "server/batching/live_run.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/status.h"
#include "core/engine/engine.h"
#include "server/batching/batcher_options.h"
#include "server/batching/scatter.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

LiveRun::LiveRun(const BatcherOptions& options, Origin origin, DeviceRuntime::StartedRun started)
    : options_(options),
      origin_(std::move(origin)),
      choice_(std::move(started.choice)),
      run_(std::move(started.run)) {}

int64_t LiveRun::room() const {
  const bool alone = !pieces_.empty() && pieces_.front().piece.alone;
  const bool closed = alone || origin_.place == Place::kBrief;
  return closed ? 0 : std::min(origin_.queue->batch_rows_max - rows_, run_->room());
}

Load LiveRun::load() const {
  Load load{.rows = rows_, .evaluations_least = std::numeric_limits<double>::max()};
  for (const Inside& inside : pieces_) {
    const Work& work = inside.piece.request->work();
    load.evaluation_macs = work.evaluation_macs;
    load.evaluations_least = std::min(load.evaluations_least, work.evaluations);
    load.evaluations_most = std::max(load.evaluations_most, work.evaluations);
  }
  return load;
}

double LiveRun::EvaluationsLeft(const Inside& inside) const {
  const double predicted = inside.piece.request->work().evaluations;
  const auto had = static_cast<double>(totals_.evaluations - inside.at_admission.evaluations);
  return std::max(1.0, had < predicted ? predicted - had : had / 8);
}

double LiveRun::work() const {
  double least = std::numeric_limits<double>::max();
  for (const Inside& inside : pieces_) least = std::min(least, EvaluationsLeft(inside));
  return least * EvaluationCost(rows_, load().evaluation_macs, options_);
}

double LiveRun::work_to_end() const {
  double most = 0;
  for (const Inside& inside : pieces_) most = std::max(most, EvaluationsLeft(inside));
  return most * EvaluationCost(rows_, load().evaluation_macs, options_);
}

absl::Status LiveRun::Admit(Piece piece, Clock::TimePoint now) {
  piece.request->Begin(now);
  const Segment part = NextPart(piece);
  HS_ASSIGN_OR_RETURN(const Ticket ticket, run_->Admit(part));
  rows_ += part.rows;
  pieces_.push_back(
      {.piece = std::move(piece), .ticket = ticket, .rows = part.rows, .at_admission = totals_});
  return absl::OkStatus();
}

WorkResult LiveRun::ResultOf(BatchResult rows) const {
  return {.rows = std::move(rows),
          .engine = choice_.engine,
          .engine_reason = choice_.why,
          .device = origin_.device};
}

void LiveRun::Evaluate(const Clock& clock, Clock::TimePoint now) {
  evaluation_began_ = now;
  spent_.macs += EvaluationCost(rows_, load().evaluation_macs, options_);
  const auto nobody_waits = [&] {
    const Clock::TimePoint now = clock.Now();
    return std::ranges::none_of(
        pieces_, [&](const Inside& inside) { return inside.piece.request->Death(now).ok(); });
  };
  evaluated_ = run_->Advance(1, nobody_waits).status();
  ++totals_.evaluations;
  totals_.rows += rows_;
  totals_.pieces += static_cast<int64_t>(pieces_.size());
}

BatchReport LiveRun::Report(const Inside& inside) const {
  const Totals& from = inside.at_admission;
  const auto evaluations =
      static_cast<double>(std::max<int64_t>(1, totals_.evaluations - from.evaluations));
  const Work& work = inside.piece.request->work();
  return {.model_label = work.model_label,
          .plan_label = work.plan_label,
          .requests = static_cast<double>(totals_.pieces - from.pieces) / evaluations,
          .rows = static_cast<double>(totals_.rows - from.rows) / evaluations,
          .turns = 1 + totals_.turns - from.turns};
}

LiveRun::Settled LiveRun::Fail(const absl::Status& status, Clock::TimePoint now) {
  Settled settled;
  const bool shared = pieces_.size() > 1;
  if (absl::IsResourceExhausted(status)) settled.full_rows = rows_;
  for (Inside& inside : pieces_) {
    const absl::Status death = inside.piece.request->Death(now);
    if (death.ok() && MayTryAgain(status, shared, inside.piece)) {
      settled.again.push_back(std::move(inside.piece));
    } else {
      settled.ended.push_back(
          {.piece = std::move(inside.piece), .rows = death.ok() ? status : death, .report = {}});
    }
  }
  pieces_.clear();
  rows_ = 0;
  return settled;
}

void LiveRun::Charge(const ClientLedger& clients) const {
  for (const Inside& inside : pieces_) {
    PendingRequest& request = *inside.piece.request;
    clients.Charge(*request.counted.client, request.TakeSpent());
  }
}

int64_t LiveRun::lead() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Inside& inside : pieces_) {
    least = std::min(least, inside.piece.request->counted.client->lead);
  }
  return least;
}

void LiveRun::BookWhole(const Inside& inside, const BatchResult& rows) {
  const int64_t booked = totals_.evaluations - inside.at_admission.evaluations;
  const int64_t made = rows.nfe.empty() ? 0 : *std::ranges::max_element(rows.nfe);
  if (made <= booked) return;
  spent_.macs +=
      static_cast<double>(made - booked) *
      EvaluationCost(inside.rows, inside.piece.request->work().evaluation_macs, options_);
}

absl::Status LiveRun::TakePart(Inside& inside, BatchResult rows) {
  inside.piece.solved.push_back(std::move(rows));
  rows_ -= std::exchange(inside.rows, 0);
  const Segment next = NextPart(inside.piece);
  if (next.rows == 0) return absl::OkStatus();
  HS_ASSIGN_OR_RETURN(inside.ticket, run_->Admit(next));
  inside.rows = next.rows;
  rows_ += next.rows;
  return absl::OkStatus();
}

LiveRun::Settled LiveRun::Settle(const Clock& clock) {
  using Finished = absl::StatusOr<std::vector<SolvedSegment>>;
  // TakeFinished may wait for the device: that is time of the run too.
  Finished finished = evaluated_.ok() ? run_->TakeFinished() : Finished(evaluated_);
  const Clock::TimePoint now = clock.Now();
  const double seconds = std::chrono::duration<double>(now - evaluation_began_).count();
  spent_.seconds += seconds;
  for (const Inside& inside : pieces_) {
    inside.piece.request->Spend(seconds * static_cast<double>(inside.rows) /
                                static_cast<double>(rows_));
  }
  if (!finished.ok()) return Fail(finished.status(), now);
  Settled settled;
  const auto end = [&](std::vector<Inside>::iterator at, absl::StatusOr<BatchResult> rows) {
    rows_ -= at->rows;
    BatchReport report = Report(*at);
    settled.ended.push_back(
        {.piece = std::move(at->piece), .rows = std::move(rows), .report = std::move(report)});
    return pieces_.erase(at);
  };
  for (SolvedSegment& one : *finished) {
    const auto at = std::ranges::find(pieces_, one.ticket, &Inside::ticket);
    if (at == pieces_.end()) continue;
    BookWhole(*at, one.rows);
    const absl::Status death = at->piece.request->Death(now);
    const absl::Status rest = death.ok() ? TakePart(*at, std::move(one.rows)) : death;
    if (!rest.ok()) {
      end(at, rest);
    } else if (at->rows == 0) {
      end(at, Concatenate(std::move(at->piece.solved)));
    }
  }
  for (auto at = pieces_.begin(); at != pieces_.end();) {
    const absl::Status death = at->piece.request->Death(now);
    if (death.ok()) {
      ++at;
      continue;
    }
    run_->Drop(at->ticket);
    at = end(at, death);
  }
  return settled;
}

}  // namespace hyperserve
