#include "server/rpc/reply.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "server/rpc/probabilities.h"
#include "server/rpc/wire_tensor.h"

namespace hyperserve {
namespace {

template <class T, class Repeated>
void SetCollapsed(const std::vector<T>& values, Repeated* repeated) {
  const std::vector<T> collapsed = Collapse(values);
  repeated->Assign(collapsed.begin(), collapsed.end());
}

void SetStatuses(const std::vector<RowStatus>& statuses, google::protobuf::RepeatedField<int>* to) {
  for (const RowStatus status : Collapse(statuses)) to->Add(RowStatusToWire(status));
}

std::vector<double> RowAsDoubles(const HostTensor& tensor, int64_t row, int64_t width) {
  const auto pick = [&](auto numbers) {
    const auto begin = numbers.begin() + row * width;
    return std::vector<double>(begin, begin + width);
  };
  return tensor.dtype == Dtype::kF64 ? pick(tensor.as<double>()) : pick(tensor.as<float>());
}

// A head that overflows leaves a row without an answer, although its solve converged.
void MarkOverflownHeads(BatchResult& rows) {
  const auto count = static_cast<int64_t>(rows.status.size());
  const int64_t width = rows.outputs.elements() / count;
  for (int64_t row = 0; row < count; ++row) {
    const std::vector<double> logits = RowAsDoubles(rows.outputs, row, width);
    const bool finite =
        std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); });
    if (!finite && rows.status[row] == RowStatus::kConverged) {
      rows.status[row] = RowStatus::kNonFinite;
    }
  }
}

struct ClassAnswers {
  std::vector<int64_t> labels;      // [rows]
  std::vector<int64_t> top_labels;  // [rows, k]
  std::vector<double> top_probabilities;
  std::vector<double> probabilities;  // [rows, classes]
};

// One row's answers; failed rows have -1 and NaN.
void AppendRow(const std::vector<double>& logits, RowStatus status, int top_k,
               ClassAnswers& answers) {
  const auto blank = std::numeric_limits<double>::quiet_NaN();
  if (status != RowStatus::kConverged) {
    answers.labels.push_back(-1);
    answers.top_labels.insert(answers.top_labels.end(), static_cast<size_t>(top_k), -1);
    answers.top_probabilities.insert(answers.top_probabilities.end(), static_cast<size_t>(top_k),
                                     blank);
    answers.probabilities.insert(answers.probabilities.end(), logits.size(), blank);
    return;
  }
  const std::vector<double> probabilities = Softmax(logits);
  const std::vector<int64_t> best = TopK(logits, std::max(top_k, 1));
  answers.labels.push_back(best.front());
  for (int i = 0; i < top_k; ++i) {
    answers.top_labels.push_back(best[static_cast<size_t>(i)]);
    answers.top_probabilities.push_back(probabilities[static_cast<size_t>(best[i])]);
  }
  answers.probabilities.insert(answers.probabilities.end(), probabilities.begin(),
                               probabilities.end());
}

void LabelsToWire(const std::vector<int64_t>& labels, const Shape& shape, v1::Tensor* wire) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kI64, shape);
  std::copy(labels.begin(), labels.end(), tensor.as<int64_t>().begin());
  TensorToWire(tensor, wire);
}

}  // namespace

v1::RowStatus RowStatusToWire(RowStatus status) {
  switch (status) {
    case RowStatus::kConverged:
      return v1::ROW_STATUS_CONVERGED;
    case RowStatus::kStepLimit:
      return v1::ROW_STATUS_STEP_LIMIT;
    case RowStatus::kStepUnderflow:
      return v1::ROW_STATUS_STEP_UNDERFLOW;
    case RowStatus::kNonFinite:
      return v1::ROW_STATUS_NON_FINITE;
  }
  return v1::ROW_STATUS_UNSPECIFIED;
}

ReplyContext ContextOf(const Prepared& prepared, std::string request_id) {
  return {.request_id = std::move(request_id),
          .model = prepared.served->name,
          .plan = prepared.plan.text,
          .tier = prepared.plan.plan.tier,
          .generation = prepared.plan.generation ? prepared.plan.generation->number : 0,
          .base_digest = prepared.served->model->base_digest()};
}

void FillInfo(const ReplyContext& context, const WorkResult& result, v1::SolveInfo* info) {
  info->set_request_id(context.request_id);
  info->set_model(context.model);
  info->set_plan(context.plan);
  info->set_tier(std::string(TierName(context.tier)));
  info->set_generation(context.generation);
  info->set_base_digest(context.base_digest);
  SetCollapsed(result.rows.nfe, info->mutable_nfe());
  SetCollapsed(result.rows.correction_evaluations, info->mutable_correction_evaluations());
  SetCollapsed(result.rows.macs, info->mutable_macs());
  SetStatuses(result.rows.status, info->mutable_row_status());
  info->set_queue_seconds(context.times.queue_seconds.value_or(0));
  info->set_solve_seconds(context.times.solve_seconds.value_or(0));
  info->set_engine(result.engine);
  info->set_device(result.device);
  info->set_bucket(result.rows.bucket);
}

void FillClassify(const ReplyContext& context, const v1::ClassifyWant& want,
                  const std::vector<std::string>& labels, WorkResult result,
                  v1::ClassifyReply* reply) {
  MarkOverflownHeads(result.rows);
  const auto& status = result.rows.status;
  const auto rows = static_cast<int64_t>(status.size());
  const Dtype dtype = result.rows.outputs.dtype;
  const int64_t classes = result.rows.outputs.elements() / rows;
  BlankFailedRows(status, result.rows.outputs);
  FillInfo(context, result, reply->mutable_info());

  ClassAnswers answers;
  for (int64_t row = 0; row < rows; ++row) {
    AppendRow(RowAsDoubles(result.rows.outputs, row, classes), status[row], want.top_k(), answers);
  }
  const bool nothing_asked = want.top_k() == 0 && !want.labels() && !want.probabilities() &&
                             !want.logits() && !want.state();
  if (want.labels() || nothing_asked) {
    reply->mutable_labels()->Assign(answers.labels.begin(), answers.labels.end());
    for (const int64_t label : answers.labels) {
      if (labels.empty()) break;
      reply->add_label_names(label < 0 ? "" : labels[static_cast<size_t>(label)]);
    }
  }
  if (want.top_k() > 0) {
    const Shape shape = {rows, want.top_k()};
    LabelsToWire(answers.top_labels, shape, reply->mutable_top_labels());
    NumbersToWire(answers.top_probabilities, shape, Dtype::kF32,
                  reply->mutable_top_probabilities());
  }
  if (want.probabilities()) {
    NumbersToWire(answers.probabilities, {rows, classes}, dtype, reply->mutable_probabilities());
  }
  if (want.logits()) TensorToWire(result.rows.outputs, reply->mutable_logits());
  if (want.state()) {
    BlankFailedRows(status, result.rows.state);
    TensorToWire(result.rows.state, reply->mutable_state());
  }
}

void FillSample(const ReplyContext& context, WorkResult result, v1::SampleReply* reply) {
  FillInfo(context, result, reply->mutable_info());
  BlankFailedRows(result.rows.status, result.rows.state);
  TensorToWire(result.rows.state, reply->mutable_samples());
  if (result.rows.log_density.bytes.empty()) return;
  BlankFailedRows(result.rows.status, result.rows.log_density);
  TensorToWire(result.rows.log_density, reply->mutable_log_density());
}

void FillChunk(const ReplyContext& context, uint64_t first_row, WorkResult result,
               v1::SampleChunk* chunk) {
  v1::SampleReply reply;
  chunk->set_first_row(first_row);
  chunk->set_rows(static_cast<int64_t>(result.rows.status.size()));
  chunk->set_generation(context.generation);
  SetStatuses(result.rows.status, chunk->mutable_row_status());
  SetCollapsed(result.rows.nfe, chunk->mutable_nfe());
  SetCollapsed(result.rows.correction_evaluations, chunk->mutable_correction_evaluations());
  SetCollapsed(result.rows.macs, chunk->mutable_macs());
  FillSample(context, std::move(result), &reply);
  chunk->mutable_samples()->Swap(reply.mutable_samples());
  if (reply.has_log_density()) chunk->mutable_log_density()->Swap(reply.mutable_log_density());
}

void FillLogProb(const ReplyContext& context, WorkResult result, v1::LogProbReply* reply) {
  FillInfo(context, result, reply->mutable_info());
  BlankFailedRows(result.rows.status, result.rows.log_density);
  TensorToWire(result.rows.log_density, reply->mutable_log_prob());
}

void FillSolve(const ReplyContext& context, const v1::SolveRequest& request, WorkResult result,
               v1::SolveReply* reply) {
  FillInfo(context, result, reply->mutable_info());
  if (!request.partial_states()) {
    BlankFailedRows(result.rows.status, result.rows.state);
    BlankFailedRows(result.rows.status, result.rows.saved);
  }
  TensorToWire(result.rows.state, reply->mutable_state());
  if (request.save_at_size() > 0) TensorToWire(result.rows.saved, reply->mutable_saved());
}

}  // namespace hyperserve
