#include "server/rpc/solve_call.h"

#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "server/calls/rungs.h"

namespace hyperserve {
namespace {

// Owned by the callback of the work that is under way, so one thread at a time touches it.
struct RungRun {
  Batcher* batcher;
  std::vector<Rung> rungs;
  std::optional<double> target;  // nullopt: there is one plan
  WorkDone done;

  size_t rung = 0;            // the one that is under way
  std::vector<int64_t> rows;  // that it solves; empty where there is one plan
  WorkResult result;          // of the plans before it
  WorkTimes times;            // likewise
};

void AddTimes(const WorkTimes& times, size_t rung, WorkTimes& all) {
  if (rung == 0) {
    all = times;
    return;
  }
  all.solve_seconds = all.solve_seconds.value_or(0) + times.queue_seconds.value_or(0) +
                      times.solve_seconds.value_or(0);
  all.retry_after = times.retry_after;
}

void Submit(std::unique_ptr<RungRun> run, Work work);

void Take(std::unique_ptr<RungRun> run, absl::StatusOr<WorkResult> part, const WorkTimes& times) {
  AddTimes(times, run->rung, run->times);
  if (!part.ok()) {
    run->done(std::move(part), run->times);
    return;
  }
  const Rung& rung = run->rungs[run->rung];
  const bool bounded = rung.bound_factor.has_value() || run->target.has_value();
  if (bounded) part->error_bound = BoundsOf(part->rows, rung.bound_factor);
  std::vector<int64_t> going_on;
  if (run->target && run->rung + 1 < run->rungs.size()) {
    for (const int64_t place : RowsThatGoOn(part->error_bound, *run->target)) {
      going_on.push_back(run->rows[static_cast<size_t>(place)]);
    }
  }
  if (run->target) {
    run->result.plan_rows.push_back(
        {.plan = rung.plan,
         .rows = static_cast<int64_t>(run->rows.size()),
         .rows_ended = static_cast<int64_t>(run->rows.size() - going_on.size())});
  }
  if (run->rung == 0) {
    part->plan_rows = std::move(run->result.plan_rows);
    run->result = *std::move(part);
  } else {
    PutRows(*part, run->rows, run->result);
  }
  if (going_on.empty()) {
    for (size_t i = run->rung + 1; run->target && i < run->rungs.size(); ++i) {
      run->result.plan_rows.push_back({.plan = run->rungs[i].plan});
    }
    run->done(std::move(run->result), run->times);
    return;
  }
  run->rows = std::move(going_on);
  Work work = WorkOfRows(run->rungs[++run->rung].work, run->rows);
  Submit(std::move(run), std::move(work));
}

void Submit(std::unique_ptr<RungRun> run, Work work) {
  Batcher* const batcher = run->batcher;
  // WorkDone is copied, so it cannot hold the pointer itself.
  auto held = std::make_shared<std::unique_ptr<RungRun>>(std::move(run));
  batcher->Submit(std::move(work),
                  [held](absl::StatusOr<WorkResult> result, const WorkTimes& times) {
                    Take(std::move(*held), std::move(result), times);
                  });
}

}  // namespace

void SubmitRungs(Batcher* batcher, Prepared prepared, WorkDone done) {
  auto run = std::make_unique<RungRun>(RungRun{.batcher = batcher,
                                               .rungs = {},
                                               .target = prepared.plan.row_target,
                                               .done = std::move(done)});
  if (run->target) {
    run->rows.resize(static_cast<size_t>(prepared.work.segment.rows));
    std::iota(run->rows.begin(), run->rows.end(), int64_t{0});
  }
  // The work of the first plan is submitted below.
  run->rungs.push_back({.plan = PrintPlan(prepared.plan.plan),
                        .bound_factor = prepared.plan.bound_factor,
                        .work = {}});
  for (Rung& rung : prepared.later) run->rungs.push_back(std::move(rung));
  Submit(std::move(run), std::move(prepared.work));
}

}  // namespace hyperserve
