#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/client.h"
#include "client/command/commands.h"
#include "client/frame/command.h"
#include "client/frame/flags.h"
#include "client/frame/json_writer.h"
#include "client/frame/output.h"
#include "client/frame/rows.h"
#include "client/frame/session.h"
#include "client/frame/slices.h"
#include "client/frame/solve_ledger.h"
#include "client/frame/table.h"
#include "client/wire_tensor.h"
#include "core/base/status.h"
#include "core/io/rows.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {
namespace {

struct Classified {
  SolveLedger ledger;
  std::vector<int64_t> labels;
  std::vector<std::string> label_names;
  HostTensor top_labels, top_probabilities, probabilities, logits;
};

// Joins one tensor of all replies; empty where it was not asked for.
template <class Get>
absl::StatusOr<HostTensor> Gather(const std::vector<v1::ClassifyReply>& replies, Get get) {
  std::vector<HostTensor> parts;
  for (const v1::ClassifyReply& reply : replies) {
    const v1::Tensor& wire = get(reply);
    if (wire.dtype() == v1::DTYPE_UNSPECIFIED) continue;
    HS_ASSIGN_OR_RETURN(HostTensor part, FromWire(wire));
    parts.push_back(std::move(part));
  }
  return JoinRows(parts);
}

absl::StatusOr<Classified> Merge(const std::vector<v1::ClassifyReply>& replies) {
  Classified all;
  for (const v1::ClassifyReply& reply : replies) {
    all.ledger.Add(reply.info(), reply.labels_size());
    all.labels.insert(all.labels.end(), reply.labels().begin(), reply.labels().end());
    all.label_names.insert(all.label_names.end(), reply.label_names().begin(),
                           reply.label_names().end());
  }
  using Reply = v1::ClassifyReply;
  HS_ASSIGN_OR_RETURN(all.top_labels, Gather(replies, [](const Reply& reply) -> const v1::Tensor& {
                        return reply.top_labels();
                      }));
  HS_ASSIGN_OR_RETURN(all.top_probabilities,
                      Gather(replies, [](const Reply& reply) -> const v1::Tensor& {
                        return reply.top_probabilities();
                      }));
  HS_ASSIGN_OR_RETURN(all.probabilities,
                      Gather(replies, [](const Reply& reply) -> const v1::Tensor& {
                        return reply.probabilities();
                      }));
  HS_ASSIGN_OR_RETURN(all.logits, Gather(replies, [](const Reply& reply) -> const v1::Tensor& {
                        return reply.logits();
                      }));
  return all;
}

absl::StatusOr<std::vector<v1::ClassifyReply>> Send(Client& client, const RowsToSend& task) {
  v1::ClassifyRequest request;
  *request.mutable_options() = SolveOptionsFromFlags(task.model, task.plan);
  v1::ClassifyWant& want = *request.mutable_want();
  want.set_labels(true);
  want.set_top_k(absl::GetFlag(FLAGS_top_k));
  want.set_probabilities(absl::GetFlag(FLAGS_probabilities));
  want.set_logits(absl::GetFlag(FLAGS_logits));
  return AskInSlices<v1::ClassifyReply>(
      "classify", task.rows.shape[0], RowsPerRequest(/*row_bytes=*/0),
      [&](const Slice& slice, const std::string& request_id) {
        v1::ClassifyRequest part = request;
        *part.mutable_inputs() = ToWire(RowsOf(task.rows.view(), slice.begin, slice.rows()));
        SetRowTerms(task.terms, slice.begin, slice.rows(), *part.mutable_options());
        part.mutable_options()->set_request_id(request_id);
        return client.Classify(std::move(part), DeadlineFromFlags());
      });
}

std::string PrintJson(const Classified& all, const std::optional<double>& accuracy) {
  JsonWriter json;
  json.BeginObject();
  all.ledger.WriteFields(json);
  json.Field("labels", all.labels);
  if (!all.label_names.empty()) json.Field("label_names", all.label_names);
  if (!all.top_labels.bytes.empty()) json.Field("top_labels", all.top_labels);
  if (!all.top_probabilities.bytes.empty()) json.Field("top_probabilities", all.top_probabilities);
  if (!all.probabilities.bytes.empty()) json.Field("probabilities", all.probabilities);
  if (!all.logits.bytes.empty()) json.Field("logits", all.logits);
  if (accuracy) json.Field("accuracy", *accuracy);
  json.EndObject();
  return json.Take() + "\n";
}

// Column names "p_0", "p_1", ..., one for each value of a row.
void AppendNames(const char* name, const HostTensor& tensor, std::vector<std::string>& names) {
  if (tensor.bytes.empty()) return;
  const int64_t columns = tensor.elements() / tensor.shape[0];
  for (int64_t i = 0; i < columns; ++i) names.push_back(absl::StrCat(name, "_", i));
}

// Appends one cell for each value of row `row`.
void AppendCells(const HostTensor& tensor, int64_t row, std::vector<std::string>& cells) {
  if (tensor.bytes.empty()) return;
  const int64_t columns = tensor.elements() / tensor.shape[0];
  for (int64_t i = 0; i < columns; ++i) {
    cells.push_back(ShortNumber(ElementAsDouble(tensor.view(), row * columns + i)));
  }
}

std::string PrintTable(const Classified& all, const std::optional<double>& accuracy) {
  std::vector<std::string> header = {"row", "label", "name", "status"};
  if (all.ledger.has_bounds()) header.push_back("bound");
  AppendNames("top", all.top_labels, header);
  AppendNames("top_p", all.top_probabilities, header);
  AppendNames("p", all.probabilities, header);
  AppendNames("logit", all.logits, header);
  TextTable table(std::move(header));
  for (int64_t row = 0; row < std::ssize(all.labels); ++row) {
    std::vector<std::string> cells = {absl::StrCat(row), absl::StrCat(all.labels[row]),
                                      all.label_names.empty() ? "" : all.label_names[row],
                                      all.ledger.status_name(row)};
    if (all.ledger.has_bounds()) cells.push_back(ShortNumber(all.ledger.error_bound(row)));
    AppendCells(all.top_labels, row, cells);
    AppendCells(all.top_probabilities, row, cells);
    AppendCells(all.probabilities, row, cells);
    AppendCells(all.logits, row, cells);
    table.Add(std::move(cells));
  }
  std::string text = absl::StrCat(table.Print(), all.ledger.Summary(), "\n");
  if (accuracy) absl::StrAppendFormat(&text, "accuracy %.2f %%\n", *accuracy * 100);
  return text;
}

}  // namespace

absl::StatusOr<int64_t> RunClassify(const Arguments& arguments) {
  Client client(ClientOptionsFromFlags());
  HS_ASSIGN_OR_RETURN(const RowsToSend task, ReadRowsToSend(client, arguments[0]));
  HS_ASSIGN_OR_RETURN(const auto replies, Send(client, task));
  HS_ASSIGN_OR_RETURN(const Classified all, Merge(replies));
  std::optional<double> accuracy;
  if (const std::string path = absl::GetFlag(FLAGS_labels); !path.empty()) {
    HS_ASSIGN_OR_RETURN(accuracy, Accuracy(path, all.labels));
  }
  PrintOut(task.format == OutputFormat::kJson ? PrintJson(all, accuracy)
                                              : PrintTable(all, accuracy));
  return all.ledger.failed_rows();
}

}  // namespace hyperserve
