#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
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
#include "core/base/shortest_text.h"
#include "core/base/status.h"
#include "core/io/rows.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {
namespace {

absl::StatusOr<std::vector<v1::LogProbReply>> Send(Client& client, const RowsToSend& task) {
  return AskInSlices<v1::LogProbReply>(
      "log-prob", task.rows.shape[0], RowsPerRequest(sizeof(double)),
      [&](const Slice& slice, const std::string& request_id) {
        v1::LogProbRequest request;
        *request.mutable_options() = SolveOptionsFromFlags(task.model, task.plan);
        request.mutable_options()->set_request_id(request_id);
        SetRowTerms(task.terms, slice.begin, slice.rows(), *request.mutable_options());
        request.set_first_row(static_cast<uint64_t>(slice.begin));
        *request.mutable_inputs() = ToWire(RowsOf(task.rows.view(), slice.begin, slice.rows()));
        return client.LogProb(std::move(request), DeadlineFromFlags());
      });
}

}  // namespace

absl::StatusOr<int64_t> RunLogProb(const Arguments& arguments) {
  Client client(ClientOptionsFromFlags());
  HS_ASSIGN_OR_RETURN(const RowsToSend task, ReadRowsToSend(client, arguments[0]));
  HS_ASSIGN_OR_RETURN(const auto replies, Send(client, task));
  SolveLedger ledger;
  std::vector<HostTensor> parts;
  for (const v1::LogProbReply& reply : replies) {
    HS_ASSIGN_OR_RETURN(HostTensor part, FromWire(reply.log_prob()));
    ledger.Add(reply.info(), part.elements());
    parts.push_back(std::move(part));
  }
  const HostTensor log_prob = JoinRows(parts);
  if (task.format == OutputFormat::kJson) {
    JsonWriter json;
    json.BeginObject();
    ledger.WriteFields(json);
    json.Field("log_prob", log_prob).EndObject();
    PrintOut(json.Take() + "\n");
    return ledger.failed_rows();
  }
  TextTable table({"row", "log_prob", "status"});
  for (int64_t row = 0; row < ledger.rows(); ++row) {
    table.Add({absl::StrCat(row), ShortestText(ElementAsDouble(log_prob.view(), row)),
               ledger.status_name(row)});
  }
  PrintOut(absl::StrCat(table.Print(), ledger.Summary(), "\n"));
  return ledger.failed_rows();
}

}  // namespace hyperserve
