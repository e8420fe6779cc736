// What calls that solve share: a unary call, in any protocol, and the plans of an automatic plan
// per row, which run one after the other.
#pragma once

#include <utility>

#include "core/base/status.h"
#include "server/batching/batcher.h"
#include "server/batching/work.h"
#include "server/calls/classify.h"
#include "server/calls/flow.h"
#include "server/calls/info.h"
#include "server/calls/prepare.h"
#include "server/calls/solve.h"
#include "server/rpc/environment.h"
#include "server/rpc/unary_call.h"

namespace hyperserve {

// Submits the work of all rows; then, while rows have a bound above the plan's row_target or
// failed, the work of these rows under the next plan. `done` gets what the rows' last plans gave,
// with the costs of all their plans, the bounds and the rows of each plan; the time of the later
// plans, also in queues, counts as time of solving. It is called exactly once, like that of
// Batcher::Submit, and with the first failure of any plan. Returns at once. The batcher must
// outlive the call.
void SubmitRungs(Batcher* batcher, Prepared prepared, WorkDone done);

// Pins the model, prepares the work of the ask and queues it; never waits. A solver thread then
// calls write(answer), which fills the reply, and answers the call. An error answers the call
// without `write`.
//
// An Ask has a member `terms` and the functions Prepare(ask, ...) and MakeAnswer(ask, ...) of
// server/calls. The data that the ask borrows and the objects that `write` points to must live
// until the call is answered; those of `unary` do.
template <class Ask, class Write>
void StartSolve(Environment* environment, UnaryCall* unary, Ask ask, Write write) {
  unary->call().TakeId(ask.terms.request_id);
  const auto prepared = [&]() -> absl::StatusOr<Prepared> {
    HS_ASSIGN_OR_RETURN(auto served, unary->call().Pin(ask.terms.model));
    HS_ASSIGN_OR_RETURN(Prepared ready, Prepare(ask, std::move(served), environment->limits));
    unary->call().Bind(ready);
    return ready;
  }();
  if (!prepared.ok()) {
    unary->Answer(prepared.status());
    return;
  }
  SubmitRungs(environment->batcher, *prepared,
              [unary, write, ask = std::move(ask), served = prepared->served,
               info = InfoOf(*prepared, unary->call().id())](absl::StatusOr<WorkResult> result,
                                                             const WorkTimes& times) mutable {
                const absl::Status status = result.status();
                unary->call().Record(result, times);
                if (status.ok()) {
                  SetTimes(times, info);
                  write(MakeAnswer(ask, *served, std::move(info), *std::move(result)));
                }
                unary->Answer(status);
              });
}

}  // namespace hyperserve
