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
  // The difference of two numbers that are finite may be none.
  if (std::isfinite(span[1] - span[0]) && span[0] <= span[1]) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("span: [", ShortestText(span[0]), ", ", ShortestText(span[1]),
                   "]; finite numbers with begin <= end and a finite length wanted"));
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

// The depths whose states the answer holds.
const std::vector<double>& SavedDepths(const SolveAsk& ask, const Model& model) {
  const bool derivative = ask.vjp || ask.jvp;
  const bool own = ask.save_at.empty() && !ask.span && !derivative;
  return own ? model.spec().save_at : ask.save_at;
}

bool WantsOutputs(const SolveAsk& ask, const Model& model) {
  return model.spec().kind == ModelKind::kRegressor && !ask.vjp && !ask.jvp;
}

int64_t RowBytes(const SolveAsk& ask, const Job& job, int64_t number_bytes) {
  const Model& model = *job.served->model;
  int64_t numbers =
      model.state_elements() * (1 + static_cast<int64_t>(SavedDepths(ask, model).size())) +
      (WantsOutputs(ask, model) ? model.outputs() : 0);
  if (ask.vjp || ask.jvp) {
    numbers += ask.state ? model.state_elements() : model.input_elements();
    numbers += ConditionNumbers(job);
  }
  return numbers * number_bytes + (ask.partial_states ? static_cast<int64_t>(sizeof(double)) : 0);
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
  rule.takes_u8 = model.spec().kind != ModelKind::kFlow && !ask.vjp && !ask.jvp;
  rule.unit_range = model.spec().input.unit_range;
  return TakeRows(*ask.inputs, rule);
}

absl::Status CheckDerivative(const SolveAsk& ask) {
  if (!ask.vjp && !ask.jvp) return absl::OkStatus();
  if (!ask.save_at.empty() || ask.partial_states) {
    return absl::InvalidArgumentError(
        "solve: a derivative is that of z at the end of the span; send neither save_at nor "
        "partial_states");
  }
  if (ask.vjp && !ask.vjp->cotangent) {
    return absl::InvalidArgumentError("cotangent: SolveVjp wants one of z(s1) for each row");
  }
  if (ask.jvp && !ask.jvp->start_tangent && !ask.jvp->condition_tangent) {
    return absl::InvalidArgumentError(
        "neither start_tangent nor condition_tangent is set; SolveJvp wants one of them");
  }
  return absl::OkStatus();
}

// The vectors of a derivative. Precondition: the job has its rows.
absl::Status TakeVectors(const SolveAsk& ask, const CallLimits& limits, Job& job) {
  if (!ask.vjp && !ask.jvp) return absl::OkStatus();
  const Model& model = *job.served->model;
  const Tier tier = job.plan.plan.tier;
  const bool pulls = ask.vjp.has_value();
  const std::optional<AskedRows>& asked = pulls ? ask.vjp->cotangent : ask.jvp->start_tangent;
  if (asked) {
    const RowsRule rule{
        .field = pulls ? "cotangent" : "start_tangent",
        .row_shape = pulls || ask.state ? model.state_shape() : model.spec().input.shape,
        .rows_max = limits.request_rows_max,
        .tier = tier};
    HS_ASSIGN_OR_RETURN(job.vector, TakeRows(*asked, rule));
    if (job.vector.shape[0] != job.rows) {
      return absl::InvalidArgumentError(absl::StrCat(Absl(rule.field), ": ", job.vector.shape[0],
                                                     " of them for ", job.rows,
                                                     " rows; send one for each row"));
    }
  }
  if (pulls) return absl::OkStatus();
  HS_ASSIGN_OR_RETURN(job.condition_vector,
                      TakeConditionTangent(ask.jvp->condition_tangent, *job.served, job.task,
                                           job.rows, tier, limits.request_rows_max));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Prepared> Prepare(const SolveAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits) {
  const Model& model = *served->model;
  if (ask.span) HS_RETURN_IF_ERROR(CheckSpan(*ask.span));
  HS_RETURN_IF_ERROR(CheckDerivative(ask));
  const std::optional<AskedRows>& start = ask.state ? ask.state : ask.inputs;
  HS_ASSIGN_OR_RETURN(const Direction direction, DirectionOf(ask.direction, model.spec()));
  Job job{.served = std::move(served),
          .task = {.direction = direction,
                   .span = ask.span.value_or(model.spec().span),
                   .entry = ask.state ? Entry::kState : Entry::kInput,
                   .save_at = SavedDepths(ask, model),
                   .derivative = ask.vjp   ? Derivative::kVjp
                                 : ask.jvp ? Derivative::kJvp
                                           : Derivative::kNone,
                   .want_depth = ask.partial_states,
                   .want_outputs = WantsOutputs(ask, model),
                   .want_bound = ask.terms.want_error_bound,
                   .rows = start ? RowsAsked(*start) : 1}};
  HS_RETURN_IF_ERROR(CheckSaveAt(job.task.save_at, job.task.span, limits.save_at_max));
  HS_RETURN_IF_ERROR(
      TakeKnotsAndGuidance(ask.terms, job.task.rows, limits.request_rows_max, limits, job));
  HS_ASSIGN_OR_RETURN(job.plan, ResolvePlan(ask.terms, *job.served, job.task, limits));
  const Tier tier = job.plan.plan.tier;
  HS_ASSIGN_OR_RETURN(job.data, TakeStart(ask, model, tier, limits));
  job.rows = job.data.shape[0];
  HS_ASSIGN_OR_RETURN(job.condition, TakeCondition(ask.terms, *job.served, job.task, job.rows, tier,
                                                   limits.request_rows_max));
  HS_RETURN_IF_ERROR(TakeVectors(ask, limits, job));
  HS_ASSIGN_OR_RETURN(const Dtype reply, ReplyDtype(ask.terms, tier));
  job.row_bytes = RowBytes(ask, job, NumberBytes(tier));
  job.kept_row_bytes = KeptRowBytes(job);
  HS_RETURN_IF_ERROR(CheckReplyFits(job.rows,
                                    RowBytes(ask, job, static_cast<int64_t>(DtypeSize(reply))),
                                    ask.terms, limits, kFewerRows));
  return Assemble(std::move(job), limits);
}

SolveAnswer MakeAnswer(const SolveAsk& ask, const ServedModel& served, SolveInfo info,
                       WorkResult result) {
  BatchResult& solved = result.rows;
  if (!solved.outputs.bytes.empty()) {
    MarkOverflownHeads(solved.outputs, solved.status);
    BlankFailedRows(solved.status, solved.outputs);
  }
  SetResult(result, info);
  if (!ask.partial_states) {
    BlankFailedRows(solved.status, solved.state);
    BlankFailedRows(solved.status, solved.saved);
  }
  BlankFailedRows(solved.status, solved.product);
  BlankFailedRows(solved.status, solved.condition_product);
  return {.info = std::move(info),
          .state = ForReply(std::move(solved.state), ask.terms),
          .saved = ForReply(std::move(solved.saved), ask.terms),
          .saved_at = SavedDepths(ask, *served.model),
          .outputs = ForReply(std::move(solved.outputs), ask.terms),
          .stopped_at = std::move(solved.depth),
          .product = ForReply(std::move(solved.product), ask.terms),
          .condition_product = ForReply(std::move(solved.condition_product), ask.terms)};
}

}  // namespace hyperserve
