#include "server/calls/solve.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "core/base/shortest_text.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "server/batching/work.h"
#include "server/calls/job.h"
#include "server/calls/limits.h"
#include "server/calls/resolve.h"
#include "server/calls/rows.h"
#include "server/registry/served_model.h"

namespace hyperserve {
namespace {

absl::Status CheckSpan(const std::array<double, 2>& span) {
  if (std::isfinite(span[0]) && std::isfinite(span[1]) && span[0] <= span[1]) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("span: [", ShortestText(span[0]), ", ",
                                                 ShortestText(span[1]),
                                                 "]; finite numbers with begin <= end wanted"));
}

absl::Status CheckSaveAt(const std::vector<double>& depths, const std::array<double, 2>& span,
                         int64_t save_at_max) {
  if (static_cast<int64_t>(depths.size()) > save_at_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("save_at: ", depths.size(), " depths, more than save_at_max = ", save_at_max));
  }
  for (size_t i = 0; i < depths.size(); ++i) {
    const bool inside = depths[i] >= span[0] && depths[i] <= span[1];  // false for NaN
    if (inside && (i == 0 || depths[i] > depths[i - 1])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "save_at[", i, "]: ", ShortestText(depths[i]), "; strictly increasing depths within [",
        ShortestText(span[0]), ", ", ShortestText(span[1]), "] wanted"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Direction> DirectionOf(const std::string& name, const ModelSpec& model) {
  if (name.empty()) return model.direction;
  const bool flow = model.kind == ModelKind::kFlow;
  const std::vector<Direction> known =
      flow ? std::vector<Direction>{Direction::kNoiseToData, Direction::kDataToNoise}
           : std::vector<Direction>{Direction::kForward};
  for (const Direction direction : known) {
    if (name == DirectionName(direction)) return direction;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "direction: '", absl::CHexEscape(name.substr(0, 40)), "' is none of a ",
      Absl(ModelKindName(model.kind)),
      "; known: ", absl::StrJoin(known, ", ", [](std::string* out, Direction direction) {
        absl::StrAppend(out, Absl(DirectionName(direction)));
      })));
}

int64_t RowBytes(const SolveAsk& ask, const Model& model, int64_t number_bytes) {
  return model.state_elements() * number_bytes * (1 + static_cast<int64_t>(ask.save_at.size())) +
         (ask.partial_states ? static_cast<int64_t>(sizeof(double)) : 0);
}

absl::StatusOr<HostTensor> TakeStart(const SolveAsk& ask, const Model& model, Tier tier,
                                     const CallLimits& limits) {
  RowsRule rule{.field = "state",
                .row_shape = model.state_shape(),
                .rows_max = limits.request_rows_max,
                .tier = tier};
  if (ask.state) return TakeRows(*ask.state, rule);
  if (!ask.inputs) {
    return absl::InvalidArgumentError("neither inputs nor state is set; Solve starts from one");
  }
  rule.field = "inputs";
  rule.row_shape = model.spec().input.shape;
  rule.takes_u8 = model.spec().kind == ModelKind::kClassifier;
  rule.unit_range = model.spec().input.unit_range;
  return TakeRows(*ask.inputs, rule);
}

}  // namespace

absl::StatusOr<Prepared> Prepare(const SolveAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits) {
  const Model& model = *served->model;
  if (ask.span) HS_RETURN_IF_ERROR(CheckSpan(*ask.span));
  const std::optional<AskedRows>& start = ask.state ? ask.state : ask.inputs;
  HS_ASSIGN_OR_RETURN(const Direction direction, DirectionOf(ask.direction, model.spec()));
  Job job{.served = std::move(served),
          .task = {.direction = direction,
                   .span = ask.span.value_or(model.spec().span),
                   .entry = ask.state ? Entry::kState : Entry::kInput,
                   .save_at = ask.save_at,
                   .want_depth = ask.partial_states,
                   .want_bound = ask.terms.want_error_bound,
                   .rows = start ? RowsAsked(*start) : 1}};
  HS_RETURN_IF_ERROR(CheckSaveAt(ask.save_at, job.task.span, limits.save_at_max));
  HS_RETURN_IF_ERROR(
      TakeKnotsAndGuidance(ask.terms, job.task.rows, limits.request_rows_max, limits, job));
  HS_ASSIGN_OR_RETURN(job.plan, ResolvePlan(ask.terms, *job.served, job.task, limits));
  const Tier tier = job.plan.plan.tier;
  HS_ASSIGN_OR_RETURN(job.data, TakeStart(ask, model, tier, limits));
  job.rows = job.data.shape[0];
  HS_ASSIGN_OR_RETURN(job.condition, TakeCondition(ask.terms, *job.served, job.task, job.rows, tier,
                                                   limits.request_rows_max));
  HS_ASSIGN_OR_RETURN(const Dtype reply, ReplyDtype(ask.terms, tier));
  job.row_bytes = RowBytes(ask, model, NumberBytes(tier));
  HS_RETURN_IF_ERROR(CheckReplyFits(job.rows,
                                    RowBytes(ask, model, static_cast<int64_t>(DtypeSize(reply))),
                                    ask.terms, limits, kFewerRows));
  return Assemble(std::move(job), limits);
}

SolveAnswer MakeAnswer(const SolveAsk& ask, const ServedModel&, SolveInfo info, WorkResult result) {
  SetResult(result, info);
  BatchResult& solved = result.rows;
  if (!ask.partial_states) {
    BlankFailedRows(solved.status, solved.state);
    BlankFailedRows(solved.status, solved.saved);
  }
  return {.info = std::move(info),
          .state = ForReply(std::move(solved.state), ask.terms),
          .saved = ForReply(std::move(solved.saved), ask.terms),
          .stopped_at = std::move(solved.depth)};
}

}  // namespace hyperserve
