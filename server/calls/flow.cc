#include "server/calls/flow.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "server/batching/work.h"
#include "server/calls/job.h"
#include "server/calls/limits.h"
#include "server/calls/resolve.h"
#include "server/calls/rows.h"
#include "server/registry/served_model.h"

namespace hyperserve {
namespace {

// Of one row's log-density, with its standard error where it is estimated.
int64_t DensityBytes(const Model& model) { return model.state_elements() > kTangentsMax ? 16 : 8; }

absl::Status CheckRowCount(int64_t rows, int64_t rows_max, std::string_view limit) {
  if (rows >= 1 && rows <= rows_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rows: ", rows, " is not within [1, ", Absl(limit), " = ", rows_max, "]",
                   rows < 1 ? "" : "; ask for them in several requests"));
}

// Row numbers go up to 2^64 - 1.
absl::Status CheckRowNumbers(uint64_t first_row, int64_t rows) {
  if (static_cast<uint64_t>(rows) - 1 <= std::numeric_limits<uint64_t>::max() - first_row) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("first_row: ", first_row, " and ", rows, " rows pass the last row, 2^64 - 1"));
}

int64_t RowBytes(const SampleAsk& ask, const Model& model, int64_t number_bytes) {
  return model.state_elements() * number_bytes + (ask.log_density ? DensityBytes(model) : 0);
}

// Numbers of one row in the gradients of a reply.
int64_t GradientNumbers(const LogProbAsk& ask, const Job& job) {
  if (!ask.gradient) return 0;
  return job.served->model->state_elements() + ConditionNumbers(job);
}

// The job of Sample and of SampleStream, which take at most `rows_max` rows. Checks all but the
// number of rows.
absl::StatusOr<Job> JobOf(const SampleAsk& ask, std::shared_ptr<const ServedModel> served,
                          const CallLimits& limits, int64_t rows_max) {
  HS_RETURN_IF_ERROR(CheckKind(*served, ModelKind::kFlow, "Sample"));
  const Model& model = *served->model;
  Job job{.served = std::move(served),
          .task = {.direction = Direction::kNoiseToData,
                   .span = model.spec().span,
                   .entry = Entry::kNoise,
                   .log_density = ask.log_density,
                   .want_bound = ask.terms.want_error_bound,
                   .rows = ask.rows},
          .rows = ask.rows,
          .seed = ask.seed,
          .first_row = ask.first_row};
  HS_RETURN_IF_ERROR(TakeProbes(ask.terms, job));
  HS_RETURN_IF_ERROR(TakeKnotsAndGuidance(ask.terms, ask.rows, rows_max, limits, job));
  HS_ASSIGN_OR_RETURN(job.plan, ResolvePlan(ask.terms, *job.served, job.task, limits));
  HS_RETURN_IF_ERROR(ReplyDtype(ask.terms, job.plan.plan.tier).status());
  job.row_bytes = RowBytes(ask, model, NumberBytes(job.plan.plan.tier));
  return job;
}

// Of one sample in the reply. Precondition: JobOf took the ask.
int64_t ReplyRowBytes(const SampleAsk& ask, const Job& job) {
  const Dtype reply = *ReplyDtype(ask.terms, job.plan.plan.tier);
  return RowBytes(ask, *job.served->model, static_cast<int64_t>(DtypeSize(reply)));
}

// The most rows that the reply and the limits on rows, bytes and work of a request allow.
int64_t ChooseChunkRows(const Job& job, int64_t reply_row_bytes, int64_t reply_bytes,
                        const CallLimits& limits) {
  const int64_t row_bytes = job.row_bytes + static_cast<int64_t>(RowBytes(job.condition.view()) +
                                                                 RowBytes(job.guidance.view()));
  const auto affordable = static_cast<int64_t>(
      std::clamp(limits.request_macs_max / std::max(PredictRow(job).macs(), 1.0), 1.0, 1e9));
  return std::min({RowsThatFit(reply_bytes, reply_row_bytes), limits.chunk_rows_default,
                   limits.request_rows_max, affordable,
                   std::max<int64_t>(1, limits.request_bytes_max / row_bytes)});
}

}  // namespace

absl::StatusOr<Prepared> Prepare(const SampleAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits) {
  HS_ASSIGN_OR_RETURN(Job job, JobOf(ask, std::move(served), limits, limits.request_rows_max));
  HS_RETURN_IF_ERROR(CheckRowCount(ask.rows, limits.request_rows_max, "request_rows_max"));
  HS_RETURN_IF_ERROR(CheckRowNumbers(ask.first_row, ask.rows));
  HS_RETURN_IF_ERROR(
      CheckReplyFits(ask.rows, ReplyRowBytes(ask, job), ask.terms, limits, "call SampleStream"));
  HS_ASSIGN_OR_RETURN(job.condition, TakeCondition(ask.terms, *job.served, job.task, ask.rows,
                                                   job.plan.plan.tier, limits.request_rows_max));
  return Assemble(std::move(job), limits);
}

SampleAnswer MakeAnswer(const SampleAsk& ask, const ServedModel&, SolveInfo info,
                        WorkResult result) {
  SetResult(result, info);
  BlankFailedRows(result.rows.status, result.rows.state);
  BlankFailedRows(result.rows.status, result.rows.log_density);
  return {.info = std::move(info),
          .samples = ForReply(std::move(result.rows.state), ask.terms),
          .log_density = std::move(result.rows.log_density)};
}

absl::StatusOr<PreparedStream> PrepareStream(const StreamAsk& ask,
                                             std::shared_ptr<const ServedModel> served,
                                             const CallLimits& limits) {
  const SampleAsk& sample = ask.sample;
  HS_ASSIGN_OR_RETURN(Job job, JobOf(sample, std::move(served), limits, limits.stream_rows_max));
  HS_RETURN_IF_ERROR(CheckRowCount(sample.rows, limits.stream_rows_max, "stream_rows_max"));
  HS_RETURN_IF_ERROR(CheckRowNumbers(sample.first_row, sample.rows));
  HS_ASSIGN_OR_RETURN(const int64_t reply_bytes, ReplyBytesLimit(sample.terms, limits));
  HS_ASSIGN_OR_RETURN(job.condition, TakeCondition(sample.terms, *job.served, job.task, sample.rows,
                                                   job.plan.plan.tier, limits.stream_rows_max));
  PreparedStream stream{.rows = sample.rows, .chunk_rows = ask.chunk_rows};
  const int64_t row_bytes = ReplyRowBytes(sample, job);
  if (ask.chunk_rows == 0) stream.chunk_rows = ChooseChunkRows(job, row_bytes, reply_bytes, limits);
  HS_RETURN_IF_ERROR(Annotate(
      CheckRowCount(stream.chunk_rows, limits.request_rows_max, "request_rows_max"), "chunk_rows"));
  stream.brought = std::make_shared<const RowsOfJob>(RowsOfJob{
      .data = {}, .condition = std::move(job.condition), .guidance = std::move(job.guidance)});
  const auto begin_with = [&](int64_t rows) {
    job.rows = rows;
    job.condition = HostTensor::CopyOf(ConditionsOf(stream.brought->condition.view(), 0, rows));
    job.guidance = HostTensor::CopyOf(ConditionsOf(stream.brought->guidance.view(), 0, rows));
  };
  begin_with(std::min(stream.chunk_rows, sample.rows));
  HS_RETURN_IF_ERROR(
      CheckReplyFits(job.rows, row_bytes, sample.terms, limits, "ask for a smaller chunk_rows"));
  HS_RETURN_IF_ERROR(SizeOf(job, limits).status());
  begin_with(1);
  HS_ASSIGN_OR_RETURN(stream.first_row, Assemble(std::move(job), limits));
  return stream;
}

Prepared ChunkOf(const PreparedStream& stream, int64_t begin, int64_t rows) {
  const auto scale = [&](Work& work) {
    work.segment.rows = rows;
    work.segment.first_row += static_cast<uint64_t>(begin);
    work.segment.condition = ConditionsOf(stream.brought->condition.view(), begin, rows);
    work.segment.guidance = ConditionsOf(stream.brought->guidance.view(), begin, rows);
    work.keep_alive = stream.brought;
    work.bytes *= rows;
    work.macs *= rows;
  };
  Prepared chunk = stream.first_row;
  scale(chunk.work);
  for (Rung& rung : chunk.later) scale(rung.work);
  return chunk;
}

absl::StatusOr<Prepared> Prepare(const LogProbAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits) {
  HS_RETURN_IF_ERROR(CheckKind(*served, ModelKind::kFlow, "LogProb"));
  const Model& model = *served->model;
  Job job{.served = std::move(served),
          .task = {.direction = Direction::kDataToNoise,
                   .span = model.spec().span,
                   .entry = Entry::kState,
                   .log_density = true,
                   .derivative = ask.gradient ? Derivative::kVjp : Derivative::kNone,
                   .want_state = false,
                   .want_bound = ask.terms.want_error_bound,
                   .rows = RowsAsked(ask.inputs)},
          .first_row = ask.first_row};
  HS_RETURN_IF_ERROR(TakeProbes(ask.terms, job));
  HS_RETURN_IF_ERROR(
      TakeKnotsAndGuidance(ask.terms, job.task.rows, limits.request_rows_max, limits, job));
  HS_ASSIGN_OR_RETURN(job.plan, ResolvePlan(ask.terms, *job.served, job.task, limits));
  HS_ASSIGN_OR_RETURN(job.data, TakeRows(ask.inputs, {.field = "inputs",
                                                      .row_shape = model.state_shape(),
                                                      .rows_max = limits.request_rows_max,
                                                      .tier = job.plan.plan.tier}));
  job.rows = job.data.shape[0];
  HS_ASSIGN_OR_RETURN(job.condition, TakeCondition(ask.terms, *job.served, job.task, job.rows,
                                                   job.plan.plan.tier, limits.request_rows_max));
  HS_ASSIGN_OR_RETURN(const Dtype reply, ReplyDtype(ask.terms, job.plan.plan.tier));
  const int64_t reply_bytes =
      DensityBytes(model) + GradientNumbers(ask, job) * static_cast<int64_t>(DtypeSize(reply));
  HS_RETURN_IF_ERROR(CheckReplyFits(job.rows, reply_bytes, ask.terms, limits, kFewerRows));
  job.row_bytes = DensityBytes(model) + GradientNumbers(ask, job) * NumberBytes(job.plan.plan.tier);
  job.kept_row_bytes = KeptRowBytes(job);
  return Assemble(std::move(job), limits);
}

LogProbAnswer MakeAnswer(const LogProbAsk& ask, const ServedModel&, SolveInfo info,
                         WorkResult result) {
  SetResult(result, info);
  BatchResult& solved = result.rows;
  for (HostTensor* part : {&solved.log_density, &solved.product, &solved.condition_product}) {
    BlankFailedRows(solved.status, *part);
  }
  return {.info = std::move(info),
          .log_prob = std::move(solved.log_density),
          .gradient = ForReply(std::move(solved.product), ask.terms),
          .condition_gradient = ForReply(std::move(solved.condition_product), ask.terms)};
}

}  // namespace hyperserve
