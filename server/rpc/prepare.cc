#include "server/rpc/prepare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/shortest_text.h"
#include "core/base/status.h"
#include "server/rpc/predict.h"
#include "server/rpc/wire_tensor.h"

namespace hyperserve {
namespace {

// Of a row's own figures in a reply's info: NFE, correction evaluations, MACs, status.
constexpr int64_t kInfoRowBytes = 24;
// Of all the rest in a reply: strings, shapes, tags.
constexpr int64_t kInfoBytes = 1024;

int64_t NumberBytes(Tier tier) { return tier == Tier::kDouble ? 8 : 4; }

absl::Status CheckKind(const ServedModel& served, ModelKind wanted, std::string_view call) {
  const ModelKind kind = served.model->spec().kind;
  if (kind == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Absl(call), " needs a ", Absl(ModelKindName(wanted)), "; model '", served.name,
                   "' is a ", Absl(ModelKindName(kind)), " (",
                   kind == ModelKind::kFlow ? "Sample, LogProb, Solve" : "Classify, Solve", ")"));
}

absl::Status CheckRowCount(int64_t rows, int64_t rows_max, std::string_view limit) {
  if (rows >= 1 && rows <= rows_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rows: ", rows, " is not within [1, ", Absl(limit), " = ", rows_max, "]",
                   rows < 1 ? "" : "; ask for them in several requests"));
}

// Rows may be numbered up to 2^64 - 1.
absl::Status CheckRowNumbers(uint64_t first_row, int64_t rows) {
  if (static_cast<uint64_t>(rows) - 1 <= std::numeric_limits<uint64_t>::max() - first_row) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("first_row: ", first_row, " and ", rows, " rows pass the last row, 2^64 - 1"));
}

absl::StatusOr<int64_t> ReplyBytesLimit(const v1::SolveOptions& options, const CallLimits& limits) {
  if (options.max_reply_bytes() < 0 || options.max_reply_bytes() > limits.reply_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_reply_bytes: ", options.max_reply_bytes(), " is not within [0, reply_bytes_max = ",
        limits.reply_bytes_max, "]; 0 asks for ", limits.reply_bytes_default));
  }
  return options.max_reply_bytes() == 0 ? limits.reply_bytes_default : options.max_reply_bytes();
}

// `row_bytes`: of one row's answers in the reply.
absl::Status CheckReplyFits(int64_t rows, int64_t row_bytes, const v1::SolveOptions& options,
                            const CallLimits& limits, std::string_view way_out) {
  HS_ASSIGN_OR_RETURN(const int64_t limit, ReplyBytesLimit(options, limits));
  const int64_t bytes = kInfoBytes + rows * (row_bytes + kInfoRowBytes);
  if (bytes <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the reply would take ", bytes, " bytes, more than max_reply_bytes = ", limit,
                   "; ", Absl(way_out), ", or raise max_reply_bytes (and the client's own limit)"));
}

constexpr char kFewerRows[] = "send fewer rows in one request";

Prepared Assemble(std::shared_ptr<const ServedModel> served, ResolvedPlan plan,
                  Direction direction) {
  Prepared prepared{.served = std::move(served), .plan = std::move(plan), .work = {}};
  BatchSpec& spec = prepared.work.spec;
  spec.model = prepared.served->model;
  if (prepared.plan.generation) spec.correction = prepared.plan.generation->correction;
  if (const FixedPlan* fixed = prepared.plan.plan.fixed()) {
    spec.plan = *fixed;
  } else {
    spec.plan = *prepared.plan.plan.adaptive();
  }
  spec.tier = prepared.plan.plan.tier;
  spec.direction = direction;
  spec.max_steps = prepared.plan.max_steps;
  prepared.work.model_label = prepared.served->name;
  prepared.work.plan_label = prepared.plan.label;
  return prepared;
}

// Gives the rows to the work, which owns them from then on. `row_bytes`: of one row's answers.
void SetRows(HostTensor rows, int64_t row_bytes, Work& work) {
  const auto owned = std::make_shared<const HostTensor>(std::move(rows));
  work.segment = {.rows = owned->shape[0],
                  .data = {.dtype = owned->dtype, .shape = owned->shape, .bytes = owned->bytes}};
  work.bytes = static_cast<int64_t>(owned->bytes.size()) + owned->shape[0] * row_bytes;
  work.keep_alive = owned;
}

int64_t LongestLabel(const std::vector<std::string>& labels) {
  size_t longest = 0;
  for (const std::string& label : labels) longest = std::max(longest, label.size());
  return static_cast<int64_t>(longest);
}

int64_t ClassifyRowBytes(const v1::ClassifyWant& want, const Model& model, Tier tier) {
  const int64_t number = NumberBytes(tier);
  return 10 + LongestLabel(model.spec().labels) + 2 + want.top_k() * int64_t{12} +
         (want.probabilities() ? model.outputs() * number : 0) +
         (want.logits() ? model.outputs() * number : 0) +
         (want.state() ? model.state_elements() * number : 0);
}

}  // namespace

absl::StatusOr<Prepared> PrepareClassify(const v1::ClassifyRequest& request,
                                         std::shared_ptr<const ServedModel> served,
                                         const CallLimits& limits) {
  HS_RETURN_IF_ERROR(CheckKind(*served, ModelKind::kClassifier, "Classify"));
  const Model& model = *served->model;
  HS_ASSIGN_OR_RETURN(ResolvedPlan plan,
                      ResolvePlan(request.options(), *served, {.span = model.spec().span}, limits));
  const Tier tier = plan.plan.tier;
  if (request.want().top_k() < 0 || request.want().top_k() > model.outputs()) {
    return absl::InvalidArgumentError(absl::StrCat("want.top_k: ", request.want().top_k(),
                                                   " is not within [0, ", model.outputs(),
                                                   "], the classes of model '", served->name, "'"));
  }
  HS_ASSIGN_OR_RETURN(HostTensor rows, RowsFromWire(request.inputs(),
                                                    {.field = "inputs",
                                                     .row_shape = model.spec().input.shape,
                                                     .rows_max = limits.request_rows_max,
                                                     .tier = tier,
                                                     .takes_u8 = true,
                                                     .unit_range = model.spec().input.unit_range}));
  const int64_t row_bytes = ClassifyRowBytes(request.want(), model, tier);
  HS_RETURN_IF_ERROR(
      CheckReplyFits(rows.shape[0], row_bytes, request.options(), limits, kFewerRows));
  Prepared prepared = Assemble(std::move(served), std::move(plan), Direction::kForward);
  prepared.work.spec.entry = Entry::kInput;
  prepared.work.spec.want_outputs = true;
  SetRows(std::move(rows), row_bytes + model.state_elements() * NumberBytes(tier), prepared.work);
  HS_RETURN_IF_ERROR(BoundWork(prepared.served->calibration, limits, prepared.work));
  return prepared;
}

namespace {

int64_t SampleRowBytes(const v1::SampleRequest& request, const Model& model, Tier tier) {
  return model.state_elements() * NumberBytes(tier) + (request.log_density() ? 8 : 0);
}

absl::StatusOr<Prepared> PrepareNoise(const v1::SampleRequest& request,
                                      std::shared_ptr<const ServedModel> served,
                                      const CallLimits& limits) {
  HS_RETURN_IF_ERROR(CheckKind(*served, ModelKind::kFlow, "Sample"));
  const PlanUse use{.direction = Direction::kNoiseToData,
                    .span = served->model->spec().span,
                    .log_density = request.log_density()};
  HS_ASSIGN_OR_RETURN(ResolvedPlan plan, ResolvePlan(request.options(), *served, use, limits));
  Prepared prepared = Assemble(std::move(served), std::move(plan), use.direction);
  prepared.work.spec.entry = Entry::kNoise;
  if (request.log_density()) prepared.work.spec.log_density = LogDensity::kDivergence;
  prepared.work.segment = {
      .rows = request.rows(), .data = {}, .seed = request.seed(), .first_row = request.first_row()};
  return prepared;
}

}  // namespace

absl::StatusOr<Prepared> PrepareSample(const v1::SampleRequest& request,
                                       std::shared_ptr<const ServedModel> served,
                                       const CallLimits& limits) {
  HS_ASSIGN_OR_RETURN(Prepared prepared, PrepareNoise(request, std::move(served), limits));
  HS_RETURN_IF_ERROR(CheckRowCount(request.rows(), limits.request_rows_max, "request_rows_max"));
  HS_RETURN_IF_ERROR(CheckRowNumbers(request.first_row(), request.rows()));
  const int64_t row_bytes =
      SampleRowBytes(request, *prepared.served->model, prepared.plan.plan.tier);
  HS_RETURN_IF_ERROR(
      CheckReplyFits(request.rows(), row_bytes, request.options(), limits, "call SampleStream"));
  prepared.work.bytes = request.rows() * row_bytes;
  HS_RETURN_IF_ERROR(BoundWork(prepared.served->calibration, limits, prepared.work));
  return prepared;
}

absl::StatusOr<PreparedStream> PrepareStream(const v1::SampleStreamRequest& request,
                                             std::shared_ptr<const ServedModel> served,
                                             const CallLimits& limits) {
  const v1::SampleRequest& sample = request.sample();
  HS_ASSIGN_OR_RETURN(Prepared whole, PrepareNoise(sample, std::move(served), limits));
  HS_RETURN_IF_ERROR(CheckRowCount(sample.rows(), limits.stream_rows_max, "stream_rows_max"));
  HS_RETURN_IF_ERROR(CheckRowNumbers(sample.first_row(), sample.rows()));
  const int64_t row_bytes = SampleRowBytes(sample, *whole.served->model, whole.plan.plan.tier);
  HS_ASSIGN_OR_RETURN(const int64_t bytes_max, ReplyBytesLimit(sample.options(), limits));
  const int64_t fitting =
      std::max<int64_t>(1, (bytes_max - kInfoBytes) / (row_bytes + kInfoRowBytes));
  PreparedStream stream{.whole = std::move(whole), .chunk_rows = request.chunk_rows()};
  if (request.chunk_rows() == 0) {
    const double row_macs =
        PredictRowMacs(stream.whole.work.spec, stream.whole.served->calibration);
    const auto affordable = static_cast<int64_t>(
        std::clamp(limits.request_macs_max / std::max(row_macs, 1.0), 1.0, 1e9));
    stream.chunk_rows =
        std::min({fitting, limits.chunk_rows_default, limits.request_rows_max, affordable,
                  std::max<int64_t>(1, limits.request_bytes_max / row_bytes)});
  }
  HS_RETURN_IF_ERROR(Annotate(
      CheckRowCount(stream.chunk_rows, limits.request_rows_max, "request_rows_max"), "chunk_rows"));
  HS_RETURN_IF_ERROR(CheckReplyFits(std::min(stream.chunk_rows, sample.rows()), row_bytes,
                                    sample.options(), limits, "ask for a smaller chunk_rows"));
  stream.whole.work.bytes = row_bytes;  // of one row, as macs below; ChunkOf multiplies
  Work chunk = ChunkOf(stream.whole.work, 0, std::min(stream.chunk_rows, sample.rows()));
  HS_RETURN_IF_ERROR(BoundWork(stream.whole.served->calibration, limits, chunk));
  stream.whole.work.macs = chunk.macs / chunk.segment.rows;
  stream.whole.work.batch_rows_max = chunk.batch_rows_max;
  return stream;
}

Work ChunkOf(const Work& stream, int64_t begin, int64_t rows) {
  Work chunk = stream;
  chunk.segment.rows = rows;
  chunk.segment.first_row += static_cast<uint64_t>(begin);
  chunk.bytes = stream.bytes * rows;
  chunk.macs = stream.macs * rows;
  return chunk;
}

absl::StatusOr<Prepared> PrepareLogProb(const v1::LogProbRequest& request,
                                        std::shared_ptr<const ServedModel> served,
                                        const CallLimits& limits) {
  HS_RETURN_IF_ERROR(CheckKind(*served, ModelKind::kFlow, "LogProb"));
  const Model& model = *served->model;
  const PlanUse use{
      .direction = Direction::kDataToNoise, .span = model.spec().span, .log_density = true};
  HS_ASSIGN_OR_RETURN(ResolvedPlan plan, ResolvePlan(request.options(), *served, use, limits));
  const Tier tier = plan.plan.tier;
  HS_ASSIGN_OR_RETURN(HostTensor rows,
                      RowsFromWire(request.inputs(), {.field = "inputs",
                                                      .row_shape = model.state_shape(),
                                                      .rows_max = limits.request_rows_max,
                                                      .tier = tier}));
  HS_RETURN_IF_ERROR(CheckReplyFits(rows.shape[0], 8, request.options(), limits, kFewerRows));
  Prepared prepared = Assemble(std::move(served), std::move(plan), use.direction);
  prepared.work.spec.entry = Entry::kState;
  prepared.work.spec.log_density = LogDensity::kDivergence;
  SetRows(std::move(rows), 8 + model.state_elements() * NumberBytes(tier), prepared.work);
  HS_RETURN_IF_ERROR(BoundWork(prepared.served->calibration, limits, prepared.work));
  return prepared;
}

namespace {

absl::StatusOr<std::array<double, 2>> SpanFromWire(const v1::SolveRequest& request,
                                                   const Model& model) {
  if (!request.has_span()) return model.spec().span;
  const double begin = request.span().begin(), end = request.span().end();
  if (std::isfinite(begin) && std::isfinite(end) && begin < end) return {{begin, end}};
  return absl::InvalidArgumentError(absl::StrCat("span: [", ShortestText(begin), ", ",
                                                 ShortestText(end),
                                                 "]; finite numbers with begin < end wanted"));
}

absl::StatusOr<std::vector<double>> SaveAtFromWire(const v1::SolveRequest& request,
                                                   const std::array<double, 2>& span,
                                                   const CallLimits& limits) {
  if (request.save_at_size() > limits.save_at_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("save_at: ", request.save_at_size(),
                     " depths, more than save_at_max = ", limits.save_at_max));
  }
  std::vector<double> depths(request.save_at().begin(), request.save_at().end());
  for (size_t i = 0; i < depths.size(); ++i) {
    const bool inside = depths[i] >= span[0] && depths[i] <= span[1];  // false for NaN
    if (inside && (i == 0 || depths[i] > depths[i - 1])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "save_at[", i, "]: ", ShortestText(depths[i]), "; strictly increasing depths within [",
        ShortestText(span[0]), ", ", ShortestText(span[1]), "] wanted"));
  }
  return depths;
}

absl::StatusOr<HostTensor> StartFromWire(const v1::SolveRequest& request, const Model& model,
                                         Tier tier, const CallLimits& limits) {
  const InputSpec& input = model.spec().input;
  RowsRule rule{.field = "state",
                .row_shape = model.state_shape(),
                .rows_max = limits.request_rows_max,
                .tier = tier};
  if (request.has_state()) return RowsFromWire(request.state(), rule);
  if (!request.has_inputs()) {
    return absl::InvalidArgumentError("neither inputs nor state is set; Solve starts from one");
  }
  rule.field = "inputs";
  rule.row_shape = input.shape;
  rule.takes_u8 = model.spec().kind == ModelKind::kClassifier;
  rule.unit_range = input.unit_range;
  return RowsFromWire(request.inputs(), rule);
}

}  // namespace

absl::StatusOr<Prepared> PrepareSolve(const v1::SolveRequest& request,
                                      std::shared_ptr<const ServedModel> served,
                                      const CallLimits& limits) {
  const Model& model = *served->model;
  HS_ASSIGN_OR_RETURN(const auto span, SpanFromWire(request, model));
  HS_ASSIGN_OR_RETURN(std::vector<double> save_at, SaveAtFromWire(request, span, limits));
  const PlanUse use{.direction = model.spec().direction, .span = span};
  HS_ASSIGN_OR_RETURN(ResolvedPlan plan, ResolvePlan(request.options(), *served, use, limits));
  const Tier tier = plan.plan.tier;
  HS_ASSIGN_OR_RETURN(HostTensor rows, StartFromWire(request, model, tier, limits));
  const int64_t row_bytes =
      model.state_elements() * NumberBytes(tier) * (1 + static_cast<int64_t>(save_at.size()));
  HS_RETURN_IF_ERROR(
      CheckReplyFits(rows.shape[0], row_bytes, request.options(), limits, kFewerRows));
  Prepared prepared = Assemble(std::move(served), std::move(plan), use.direction);
  BatchSpec& spec = prepared.work.spec;
  spec.entry = request.has_state() ? Entry::kState : Entry::kInput;
  if (span != model.spec().span) spec.span = span;
  spec.save_at = std::move(save_at);
  SetRows(std::move(rows), row_bytes, prepared.work);
  HS_RETURN_IF_ERROR(BoundWork(prepared.served->calibration, limits, prepared.work));
  return prepared;
}

}  // namespace hyperserve
