#include "server/calls/prepare.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "core/base/shortest_text.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_runtime.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "server/batching/work.h"
#include "server/calls/ask.h"
#include "server/calls/limits.h"
#include "server/calls/rows.h"
#include "server/registry/served_model.h"

namespace hyperserve {
namespace {

// Bytes of one row's figures in a reply: NFE, correction evaluations, MACs, status, bound.
constexpr int64_t kInfoRowBytes = 32;
// Bytes of the rest of a reply: strings, shapes, tags.
constexpr int64_t kInfoBytes = 1024;

// `kept` are the rows of the job, which `job` may hold no longer.
Work WorkOf(const Job& job, const JobSize& size, const std::shared_ptr<const RowsOfJob>& kept) {
  const Model& model = *job.served->model;
  const StepPlan plan = StepPlanOf(job.plan.plan);
  Work work{.segment = {.rows = job.rows,
                        .data = kept->data.view(),
                        .seed = job.seed,
                        .first_row = job.first_row,
                        .probe_seed = job.probe_seed,
                        .condition = kept->condition.view(),
                        .guidance = kept->guidance.view(),
                        .vector = kept->vector.view(),
                        .condition_vector = kept->condition_vector.view(),
                        .control = ControlOf(plan, job.plan.max_steps)},
            .keep_alive = kept,
            .bytes = size.bytes,
            .macs = size.macs,
            .evaluations = size.row.evaluations,
            .evaluation_macs = size.row.evaluation_macs,
            .batch_rows_max = size.batch_rows_max,
            .model_label = job.served->name,
            .plan_label = job.plan.label};
  BatchSpec& spec = work.spec;
  spec.model = job.served->model;
  if (job.plan.generation) spec.correction = job.plan.generation->correction;
  SetPlan(plan, spec);
  spec.tier = job.plan.plan.tier;
  spec.entry = job.task.entry;
  if (spec.entry != Entry::kNoise) spec.dtype = kept->data.dtype;
  spec.direction = job.task.direction;
  if (job.task.span != model.spec().span) spec.span = job.task.span;
  spec.save_at = job.task.save_at;
  spec.want_state = job.task.want_state;
  spec.want_depth = job.task.want_depth;
  spec.want_outputs = job.task.want_outputs;
  spec.derivative = job.task.derivative;
  spec.want_distance = job.plan.bound_factor.has_value();
  spec.guidance = job.task.guidance;
  spec.knots = job.task.knots;
  if (job.task.log_density) {
    spec.log_density = job.task.probes > 0           ? LogDensity::kHutchinson
                       : job.plan.plan.hypersolved() ? LogDensity::kStepMap
                                                     : LogDensity::kDivergence;
    spec.probes = job.task.probes;
  }
  return work;
}

// One for each row, or one for all; `what` names them.
absl::StatusOr<HostTensor> TakeForRows(const AskedRows& asked, const RowsRule& rule,
                                       std::string_view what, int64_t rows) {
  HS_ASSIGN_OR_RETURN(HostTensor taken, TakeRows(asked, rule));
  if (taken.shape[0] == 1 || taken.shape[0] == rows) return taken;
  return absl::InvalidArgumentError(absl::StrCat(Absl(rule.field), ": ", taken.shape[0], " ",
                                                 Absl(what), " for ", rows,
                                                 " rows; send one for each row, or one for all"));
}

absl::Status TakeKnots(const AskTerms& terms, const CallLimits& limits, Task& task) {
  if (!terms.knots) return absl::OkStatus();
  HS_RETURN_IF_ERROR(terms.knots->status());
  const std::vector<double>& depths = (*terms.knots)->depths;
  if (!terms.condition) {
    return absl::InvalidArgumentError(
        "condition_knots: the request has no condition; send its values at the knots");
  }
  if (depths.size() < 2 || std::ssize(depths) > limits.save_at_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("condition_knots.depths: ", depths.size(),
                     " depths; from 2 to save_at_max = ", limits.save_at_max, " wanted"));
  }
  for (size_t i = 0; i < depths.size(); ++i) {
    if (std::isfinite(depths[i]) && (i == 0 || depths[i] > depths[i - 1])) continue;
    return absl::InvalidArgumentError(absl::StrCat("condition_knots.depths[", i,
                                                   "]: ", ShortestText(depths[i]),
                                                   "; strictly increasing depths wanted"));
  }
  task.knots = **terms.knots;
  return absl::OkStatus();
}

absl::Status TakeGuidance(const AskTerms& terms, int64_t rows, int64_t rows_max, Job& job) {
  if (!terms.guidance) return absl::OkStatus();
  const ServedModel& served = *job.served;
  if (served.model->spec().no_condition.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "guidance: model '", served.name,
        "' does not say what stands for no condition (condition.none in model.json); send the "
        "request without guidance"));
  }
  if (!terms.condition) {
    return absl::InvalidArgumentError(
        "guidance: it weighs a condition, and the request has none; send one, or no guidance");
  }
  AskedRows asked = *terms.guidance;
  if (asked.ok() && (asked->shape.empty() || asked->shape.size() > 2)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "guidance: shape ", ShapeText(asked->shape),
        " found, [rows] wanted, or [rows, steps] with a weight for each step of a plan"));
  }
  if (asked.ok() && asked->shape.size() == 1) asked->shape.push_back(1);
  const bool matrix = asked.ok() && asked->shape.size() == 2 && asked->shape[1] > 0;
  const int64_t weights = matrix ? asked->shape[1] : 1;
  HS_ASSIGN_OR_RETURN(const HostTensor taken, TakeForRows(asked,
                                                          {.field = "guidance",
                                                           .row_shape = {weights},
                                                           .rows_max = rows_max,
                                                           .tier = Tier::kDouble},
                                                          "weights", rows));
  HostTensor guidance = ConvertedTo(taken.view(), Dtype::kF64);
  const std::span<const double> numbers = std::as_const(guidance).as<double>();
  if (std::ranges::all_of(numbers, [](double w) { return w == 1; })) return absl::OkStatus();
  int64_t evaluations = 0;
  for (const double w : numbers) evaluations += GuidedEvaluations(w);
  job.task.guidance = weights;
  job.task.slope_evaluations =
      static_cast<double>(evaluations) / static_cast<double>(numbers.size());
  job.guidance = std::move(guidance);
  return absl::OkStatus();
}

}  // namespace

Shape ConditionShape(const Model& model, const Task& task) {
  Shape shape = model.spec().condition;
  if (!task.knots.empty()) shape.insert(shape.begin(), std::ssize(task.knots.depths));
  return shape;
}

int64_t ConditionNumbers(const Job& job) {
  const Shape shape = ConditionShape(*job.served->model, job.task);
  return shape.empty() ? 0 : ElementCount(shape).value_or(0);
}

absl::StatusOr<Prepared> Assemble(Job job, const CallLimits& limits) {
  HS_ASSIGN_OR_RETURN(const JobSize size, SizeOf(job, limits));
  const ResolvedPlan first = job.plan;
  std::vector<JobSize> later_sizes;
  for (const ResolvedPlan& later : first.later) {
    job.plan = later;
    HS_ASSIGN_OR_RETURN(later_sizes.emplace_back(), SizeOf(job, limits));
  }
  const auto kept = std::make_shared<const RowsOfJob>(
      RowsOfJob{.data = std::move(job.data),
                .condition = std::move(job.condition),
                .guidance = std::move(job.guidance),
                .vector = std::move(job.vector),
                .condition_vector = std::move(job.condition_vector)});
  job.plan = first;
  Prepared prepared{.served = job.served, .plan = first, .work = WorkOf(job, size, kept)};
  for (size_t i = 0; i < first.later.size(); ++i) {
    job.plan = first.later[i];
    prepared.later.push_back({.plan = job.plan.text,
                              .bound_factor = job.plan.bound_factor,
                              .work = WorkOf(job, later_sizes[i], kept)});
    prepared.later.back().work.plan_label = first.label;
  }
  return prepared;
}

absl::Status CheckKind(const ServedModel& served, ModelKind wanted, std::string_view call) {
  const ModelKind kind = served.model->spec().kind;
  if (kind == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Absl(call), " needs a ", Absl(ModelKindName(wanted)), "; model '", served.name,
                   "' is a ", Absl(ModelKindName(kind)), " (",
                   kind == ModelKind::kFlow         ? "Sample, LogProb, Solve"
                   : kind == ModelKind::kClassifier ? "Classify, Solve"
                                                    : "Solve",
                   ")"));
}

absl::StatusOr<HostTensor> TakeCondition(const AskTerms& terms, const ServedModel& served,
                                         const Task& task, int64_t rows, Tier tier,
                                         int64_t rows_max) {
  const Shape& shape = served.model->spec().condition;
  if (shape.empty()) {
    if (!terms.condition) return HostTensor();
    return absl::InvalidArgumentError(absl::StrCat(
        "condition: model '", served.name, "' has none; send the request without a condition"));
  }
  if (!terms.condition) {
    const std::vector<double>& none = served.model->spec().no_condition;
    if (!none.empty()) {
      return TensorOf(none, {1, shape[0]}, tier == Tier::kDouble ? Dtype::kF64 : Dtype::kF32);
    }
    return absl::InvalidArgumentError(absl::StrCat("condition: model '", served.name,
                                                   "' needs one of ", ShapeText(shape),
                                                   " for each row, or one for all rows"));
  }
  return TakeForRows(*terms.condition,
                     {.field = "condition",
                      .row_shape = ConditionShape(*served.model, task),
                      .rows_max = rows_max,
                      .tier = tier},
                     "conditions", rows);
}

absl::Status TakeKnotsAndGuidance(const AskTerms& terms, int64_t rows, int64_t rows_max,
                                  const CallLimits& limits, Job& job) {
  HS_RETURN_IF_ERROR(TakeKnots(terms, limits, job.task));
  return TakeGuidance(terms, rows, rows_max, job);
}

absl::Status TakeProbes(const AskTerms& terms, Job& job) {
  if (terms.probes != 0 && (terms.probes < kProbesMin || terms.probes > kProbesMax)) {
    return absl::InvalidArgumentError(absl::StrCat("probes: ", terms.probes, " is not within [",
                                                   kProbesMin, ", ", kProbesMax, "]; 0 asks for ",
                                                   kProbesDefault));
  }
  const bool exact = job.served->model->state_elements() <= kTangentsMax;
  if (!job.task.log_density || exact || job.task.derivative != Derivative::kNone) {
    return absl::OkStatus();
  }
  job.task.probes = terms.probes == 0 ? kProbesDefault : terms.probes;
  job.probe_seed = terms.probe_seed;
  return absl::OkStatus();
}

absl::StatusOr<HostTensor> TakeConditionTangent(const std::optional<AskedRows>& asked,
                                                const ServedModel& served, const Task& task,
                                                int64_t rows, Tier tier, int64_t rows_max) {
  if (!asked) return HostTensor();
  if (served.model->spec().condition.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("condition_tangent: model '", served.name, "' has no condition"));
  }
  return TakeForRows(*asked,
                     {.field = "condition_tangent",
                      .row_shape = ConditionShape(*served.model, task),
                      .rows_max = rows_max,
                      .tier = tier},
                     "conditions", rows);
}

int64_t KeptRowBytes(const Job& job) {
  const FixedPlan* const fixed = job.plan.plan.fixed();
  if (job.task.derivative != Derivative::kVjp || fixed == nullptr) return 0;
  // A knot cuts a step.
  const int64_t steps = fixed->steps + std::ssize(job.task.knots.depths);
  return steps * job.served->model->state_elements() * static_cast<int64_t>(sizeof(double));
}

absl::StatusOr<int64_t> ReplyBytesLimit(const AskTerms& terms, const CallLimits& limits) {
  if (terms.max_reply_bytes < 0 || terms.max_reply_bytes > limits.reply_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_reply_bytes: ", terms.max_reply_bytes, " is not within [0, reply_bytes_max = ",
        limits.reply_bytes_max, "]; 0 asks for ", limits.reply_bytes_default));
  }
  return terms.max_reply_bytes == 0 ? limits.reply_bytes_default : terms.max_reply_bytes;
}

int64_t RowsThatFit(int64_t reply_bytes, int64_t row_bytes) {
  return std::max<int64_t>(1, (reply_bytes - kInfoBytes) / (row_bytes + kInfoRowBytes));
}

absl::Status CheckReplyFits(int64_t rows, int64_t row_bytes, const AskTerms& terms,
                            const CallLimits& limits, std::string_view way_out) {
  HS_ASSIGN_OR_RETURN(const int64_t limit, ReplyBytesLimit(terms, limits));
  const int64_t bytes = kInfoBytes + rows * (row_bytes + kInfoRowBytes);
  if (bytes <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the reply would take ", bytes, " bytes, more than max_reply_bytes = ", limit,
                   "; ", Absl(way_out), ", or raise max_reply_bytes (and the client's own limit)"));
}

int64_t NumberBytes(Tier tier) { return tier == Tier::kDouble ? 8 : 4; }

absl::StatusOr<Dtype> ReplyDtype(const AskTerms& terms, Tier tier) {
  if (!terms.reply_dtype.ok()) return Annotate(terms.reply_dtype.status(), "reply_dtype");
  const Dtype own = tier == Tier::kDouble ? Dtype::kF64 : Dtype::kF32;
  const Dtype dtype = terms.reply_dtype->value_or(own);
  if (dtype == own || dtype == Dtype::kF32 || dtype == Dtype::kF16) return dtype;
  return absl::InvalidArgumentError(
      absl::StrCat("reply_dtype: ", Absl(DtypeName(dtype)),
                   " is not sent; ask for F16, F32, or F64 with a plan in tier double"));
}

HostTensor ForReply(HostTensor tensor, const AskTerms& terms) {
  const Dtype wanted = terms.reply_dtype->value_or(tensor.dtype);
  if (wanted == tensor.dtype || tensor.bytes.empty()) return tensor;
  return ConvertedTo(tensor.view(), wanted);
}

}  // namespace hyperserve
