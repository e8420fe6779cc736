#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/command/commands.h"
#include "client/frame/command.h"
#include "client/frame/failure.h"
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
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {
namespace {

struct Solved {
  HostTensor state, saved, outputs;  // without dimensions: there are none
  std::vector<double> saved_at;      // depths of the saved states
  std::vector<double> stopped_at;    // of each row; empty: not asked for
  SolveLedger ledger;
};

// The request as the flags describe it, without rows and options.
absl::StatusOr<v1::SolveRequest> RequestFromFlags() {
  v1::SolveRequest request;
  HS_ASSIGN_OR_RETURN(const auto span, ParseNumbers("span", absl::GetFlag(FLAGS_span)));
  if (!span.empty() && span.size() != 2) return UsageError("--span takes two depths: begin,end");
  if (!span.empty()) {
    request.mutable_span()->set_begin(span[0]);
    request.mutable_span()->set_end(span[1]);
  }
  HS_ASSIGN_OR_RETURN(const auto save_at, ParseNumbers("save_at", absl::GetFlag(FLAGS_save_at)));
  request.mutable_save_at()->Assign(save_at.begin(), save_at.end());
  request.set_partial_states(absl::GetFlag(FLAGS_partial_states));
  request.set_direction(absl::GetFlag(FLAGS_direction));
  return request;
}

// A trajectory's answer holds its states at its own depths then.
bool SavesOwnDepths(const v1::SolveRequest& request) {
  return request.save_at_size() == 0 && !request.has_span();
}

absl::StatusOr<Solved> Send(Client& client, const v1::GetModelReply& model, const Plan& plan,
                            v1::SolveRequest request, const HostTensor& rows,
                            const RowTerms& terms) {
  const int64_t depths = SavesOwnDepths(request) ? model.save_at_size() : request.save_at_size();
  const int64_t row_bytes = StatesBytes(model, depths);
  const int64_t batch = RowsPerRequest(row_bytes);
  *request.mutable_options() = SolveOptionsFromFlags(model, plan, batch * row_bytes);
  HS_ASSIGN_OR_RETURN(
      const auto replies,
      AskInSlices<v1::SolveReply>(
          "solve", rows.shape[0], batch, [&](const Slice& slice, const std::string& request_id) {
            v1::SolveRequest part = request;
            SetRowTerms(terms, slice.begin, slice.rows(), *part.mutable_options());
            part.mutable_options()->set_request_id(request_id);
            v1::Tensor& start =
                absl::GetFlag(FLAGS_state) ? *part.mutable_state() : *part.mutable_inputs();
            start = ToWire(RowsOf(rows.view(), slice.begin, slice.rows()));
            return client.Solve(std::move(part), DeadlineFromFlags());
          }));
  Solved solved;
  std::vector<HostTensor> states, saved, outputs;
  for (const v1::SolveReply& reply : replies) {
    HS_ASSIGN_OR_RETURN(HostTensor state, FromWire(reply.state()));
    solved.ledger.Add(reply.info(), state.shape.empty() ? 0 : state.shape[0]);
    states.push_back(std::move(state));
    solved.stopped_at.insert(solved.stopped_at.end(), reply.stopped_at().begin(),
                             reply.stopped_at().end());
    solved.saved_at.assign(reply.saved_at().begin(), reply.saved_at().end());
    if (reply.has_saved()) {
      HS_ASSIGN_OR_RETURN(saved.emplace_back(), FromWire(reply.saved()));
    }
    if (reply.has_outputs()) {
      HS_ASSIGN_OR_RETURN(outputs.emplace_back(), FromWire(reply.outputs()));
    }
  }
  solved.state = JoinRows(states);
  solved.saved = JoinRows(saved);
  solved.outputs = JoinRows(outputs);
  return solved;
}

// What a .csv and a table hold: the outputs where the model has some, else the states at the end.
std::string PrintRows(const Solved& solved) {
  const bool outputs = !solved.outputs.bytes.empty();
  const HostTensor& rows = outputs ? solved.outputs : solved.state;
  const int64_t count = rows.shape.empty() ? 0 : rows.shape[0];
  return PrintCsv(CoordinateNames(count == 0 ? 0 : rows.elements() / count, outputs ? "y" : "x"),
                  rows, HostTensor());
}

absl::Status WriteStates(const std::string& path, const Solved& solved) {
  if (path.ends_with(".csv")) return WriteOutFile(path, PrintRows(solved));
  std::map<std::string, TensorView, std::less<>> tensors;
  const auto add = [&tensors](const char* name, const HostTensor& tensor) {
    if (!tensor.bytes.empty()) tensors[name] = tensor.view();
  };
  add("state", solved.state);
  add("saved", solved.saved);
  add("outputs", solved.outputs);
  return WriteOutFile(path, SerializeSafetensors(tensors));
}

// `saved`: whose states besides the last one the answer holds; empty: none.
absl::Status CheckOut(const std::string& out, std::string_view saved) {
  if (out.empty() || out.ends_with(".safetensors")) return absl::OkStatus();
  if (!out.ends_with(".csv")) {
    return UsageError(absl::StrCat("--out=", out, ": the name must end in .csv or .safetensors"));
  }
  if (saved.empty()) return absl::OkStatus();
  return UsageError(absl::StrCat("--out=", out, ": a .csv has no place for the states of ",
                                 Absl(saved),
                                 ": name a .safetensors, or take --format json without --out"));
}

void PrintTable(const Solved& solved, const std::string& out) {
  std::string summary = solved.ledger.Summary() + "\n";
  if (!out.empty()) {
    PrintOut(absl::StrCat(summary, "written to ", out, "\n"));
    return;
  }
  if (!solved.saved.bytes.empty()) {
    absl::StrAppend(&summary, Counted(solved.saved.shape[1], "saved depth"),
                    " a row not shown: --out FILE.safetensors or --format json has the states\n");
  }
  if (PrintOut(PrintRows(solved))) std::fputs(summary.c_str(), stderr);
}

}  // namespace

absl::StatusOr<int64_t> RunSolve(const Arguments& arguments) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  HS_ASSIGN_OR_RETURN(const Plan plan, PlanFromText("plan", absl::GetFlag(FLAGS_plan)));
  const std::string out = absl::GetFlag(FLAGS_out);
  HS_RETURN_IF_ERROR(CheckOut(out, absl::GetFlag(FLAGS_save_at).empty() ? "" : "--save_at"));
  HS_ASSIGN_OR_RETURN(RowsFile file, ReadInput(arguments[0], absl::GetFlag(FLAGS_tensor)));
  Client client(ClientOptionsFromFlags());
  HS_ASSIGN_OR_RETURN(const v1::GetModelReply model, ChooseModel(client));
  HS_ASSIGN_OR_RETURN(v1::SolveRequest request, RequestFromFlags());
  const bool of_trajectory = model.save_at_size() > 0 && SavesOwnDepths(request);
  HS_RETURN_IF_ERROR(CheckOut(out, of_trajectory ? "a trajectory" : ""));
  const Shape state_shape = StateShape(model);
  HS_ASSIGN_OR_RETURN(
      HostTensor rows,
      FitInput(std::move(file), absl::GetFlag(FLAGS_state) ? state_shape : InputShape(model),
               absl::GetFlag(FLAGS_limit)));
  rows = ForTier(rows, plan.tier);
  HS_ASSIGN_OR_RETURN(const RowTerms terms, RowTermsFromFlags(model, plan, rows.shape[0]));
  HS_ASSIGN_OR_RETURN(const Solved solved,
                      Send(client, model, plan, std::move(request), rows, terms));
  if (!out.empty()) HS_RETURN_IF_ERROR(WriteStates(out, solved));
  if (format == OutputFormat::kJson) {
    JsonWriter json;
    json.BeginObject();
    solved.ledger.WriteFields(json);
    if (!out.empty()) json.Field("out", out);
    if (out.empty()) json.Field("state", solved.state);
    if (!solved.saved_at.empty()) json.Field("saved_at", solved.saved_at);
    if (out.empty() && !solved.saved.bytes.empty()) json.Field("saved", solved.saved);
    if (out.empty() && !solved.outputs.bytes.empty()) json.Field("outputs", solved.outputs);
    if (!solved.stopped_at.empty()) json.Field("stopped_at", solved.stopped_at);
    json.EndObject();
    PrintOut(json.Take() + "\n");
  } else {
    PrintTable(solved, out);
  }
  return solved.ledger.failed_rows();
}

}  // namespace hyperserve
