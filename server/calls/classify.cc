#include "server/calls/classify.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/batching/work.h"
#include "server/calls/job.h"
#include "server/calls/limits.h"
#include "server/calls/probabilities.h"
#include "server/calls/resolve.h"
#include "server/calls/rows.h"
#include "server/registry/served_model.h"

namespace hyperserve {
namespace {

int64_t LongestLabel(const std::vector<std::string>& labels) {
  size_t longest = 0;
  for (const std::string& label : labels) longest = std::max(longest, label.size());
  return static_cast<int64_t>(longest);
}

int64_t RowBytes(const ClassifyAsk::Want& want, const Model& model, int64_t number) {
  return 10 + LongestLabel(model.spec().labels) + 2 + want.top_k * int64_t{12} +
         (want.probabilities ? model.outputs() * number : 0) +
         (want.logits ? model.outputs() * number : 0) +
         (want.state ? model.state_elements() * number : 0);
}

// The figures that follow from the logits, row after row.
struct ClassFigures {
  std::vector<int64_t> labels;      // [rows]
  std::vector<int64_t> top_labels;  // [rows, k]
  std::vector<double> top_probabilities;
  std::vector<double> probabilities;  // [rows, classes]
};

// Appends the figures of one row; a failed row has -1 and NaN.
void AppendRow(const std::vector<double>& logits, RowStatus status, int top_k,
               ClassFigures& figures) {
  const auto blank = std::numeric_limits<double>::quiet_NaN();
  if (status != RowStatus::kConverged) {
    figures.labels.push_back(-1);
    figures.top_labels.insert(figures.top_labels.end(), static_cast<size_t>(top_k), -1);
    figures.top_probabilities.insert(figures.top_probabilities.end(), static_cast<size_t>(top_k),
                                     blank);
    figures.probabilities.insert(figures.probabilities.end(), logits.size(), blank);
    return;
  }
  const std::vector<double> probabilities = Softmax(logits);
  const std::vector<int64_t> best = TopK(logits, std::max(top_k, 1));
  figures.labels.push_back(best.front());
  for (int i = 0; i < top_k; ++i) {
    figures.top_labels.push_back(best[static_cast<size_t>(i)]);
    figures.top_probabilities.push_back(probabilities[static_cast<size_t>(best[i])]);
  }
  figures.probabilities.insert(figures.probabilities.end(), probabilities.begin(),
                               probabilities.end());
}

HostTensor LabelTensor(const std::vector<int64_t>& labels, const Shape& shape) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kI64, shape);
  std::copy(labels.begin(), labels.end(), tensor.as<int64_t>().begin());
  return tensor;
}

std::vector<std::string> NamesOf(const std::vector<int64_t>& labels,
                                 const std::vector<std::string>& classes) {
  std::vector<std::string> names;
  if (classes.empty()) return names;
  for (const int64_t label : labels) {
    names.push_back(label < 0 ? "" : classes[static_cast<size_t>(label)]);
  }
  return names;
}

}  // namespace

absl::StatusOr<Prepared> Prepare(const ClassifyAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits) {
  HS_RETURN_IF_ERROR(CheckKind(*served, ModelKind::kClassifier, "Classify"));
  const Model& model = *served->model;
  Job job{.served = std::move(served),
          .task = {.span = model.spec().span,
                   .entry = Entry::kInput,
                   .want_state = ask.want.state,
                   .want_outputs = true,
                   .want_bound = ask.terms.want_error_bound,
                   .rows = RowsAsked(ask.inputs)}};
  HS_RETURN_IF_ERROR(
      TakeKnotsAndGuidance(ask.terms, job.task.rows, limits.request_rows_max, limits, job));
  HS_ASSIGN_OR_RETURN(job.plan, ResolvePlan(ask.terms, *job.served, job.task, limits));
  const Tier tier = job.plan.plan.tier;
  if (ask.want.top_k < 0 || ask.want.top_k > model.outputs()) {
    return absl::InvalidArgumentError(
        absl::StrCat("want.top_k: ", ask.want.top_k, " is not within [0, ", model.outputs(),
                     "], the classes of model '", job.served->name, "'"));
  }
  HS_ASSIGN_OR_RETURN(job.data,
                      TakeRows(ask.inputs, {.field = "inputs",
                                            .row_shape = model.spec().input.shape,
                                            .rows_max = limits.request_rows_max,
                                            .tier = tier,
                                            .takes_u8 = true,
                                            .unit_range = model.spec().input.unit_range}));
  job.rows = job.data.shape[0];
  HS_ASSIGN_OR_RETURN(job.condition, TakeCondition(ask.terms, *job.served, job.task, job.rows, tier,
                                                   limits.request_rows_max));
  HS_ASSIGN_OR_RETURN(const Dtype reply, ReplyDtype(ask.terms, tier));
  job.row_bytes = RowBytes(ask.want, model, NumberBytes(tier));
  HS_RETURN_IF_ERROR(
      CheckReplyFits(job.rows, RowBytes(ask.want, model, static_cast<int64_t>(DtypeSize(reply))),
                     ask.terms, limits, kFewerRows));
  return Assemble(std::move(job), limits);
}

ClassifyAnswer MakeAnswer(const ClassifyAsk& ask, const ServedModel& served, SolveInfo info,
                          WorkResult result) {
  const ClassifyAsk::Want& want = ask.want;
  BatchResult& solved = result.rows;
  MarkOverflownHeads(solved.outputs, solved.status);
  BlankFailedRows(solved.status, solved.outputs);
  SetResult(result, info);

  const auto rows = static_cast<int64_t>(solved.status.size());
  const int64_t classes = solved.outputs.elements() / rows;
  ClassFigures figures;
  for (int64_t row = 0; row < rows; ++row) {
    AppendRow(RowAsDoubles(solved.outputs, row, classes), solved.status[row], want.top_k, figures);
  }
  ClassifyAnswer answer{.info = std::move(info)};
  if (want.top_k > 0) {
    const Shape shape = {rows, want.top_k};
    answer.top_labels = LabelTensor(figures.top_labels, shape);
    answer.top_probabilities = TensorOf(figures.top_probabilities, shape, Dtype::kF32);
  }
  if (want.probabilities) {
    answer.probabilities =
        ForReply(TensorOf(figures.probabilities, {rows, classes}, solved.outputs.dtype), ask.terms);
  }
  if (want.state) {
    BlankFailedRows(solved.status, solved.state);
    answer.state = ForReply(std::move(solved.state), ask.terms);
  }
  const bool others = want.top_k > 0 || want.probabilities || want.logits || want.state;
  if (want.labels || !others) {
    answer.label_names = NamesOf(figures.labels, served.model->spec().labels);
    answer.labels = std::move(figures.labels);
  }
  if (want.logits) answer.logits = ForReply(std::move(solved.outputs), ask.terms);
  return answer;
}

}  // namespace hyperserve
