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
#include "client/frame/solve_ledger.h"
#include "client/frame/table.h"
#include "client/wire_tensor.h"
#include "core/base/status.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "programs/gnuplot.h"
#include "programs/progress.h"

namespace hyperserve {
namespace {

// The most rows that are asked for in one reply; more come as a stream.
constexpr int64_t kUnaryRowsMax = 4096;

struct Samples {
  HostTensor points, log_density;
  SolveLedger ledger;
};

absl::StatusOr<Samples> Draw(Client& client, v1::SampleRequest request) {
  const int64_t rows = request.rows();
  HS_ASSIGN_OR_RETURN(const v1::SampleReply reply,
                      client.Sample(std::move(request), DeadlineFromFlags()));
  Samples samples;
  HS_ASSIGN_OR_RETURN(samples.points, FromWire(reply.samples()));
  if (reply.has_log_density()) {
    HS_ASSIGN_OR_RETURN(samples.log_density, FromWire(reply.log_density()));
  }
  samples.ledger.Add(reply.info(), rows);
  return samples;
}

// Appends a list of a chunk, which may hold one value for all rows of the chunk.
template <class List>
void Expand(const List& list, int64_t rows, List& to) {
  for (int64_t row = 0; row < rows; ++row) {
    if (!list.empty()) to.Add(list.Get(list.size() == rows ? static_cast<int>(row) : 0));
  }
}

absl::StatusOr<Samples> DrawStream(Client& client, v1::SampleRequest request) {
  std::vector<HostTensor> points, log_densities;
  v1::SolveInfo whole;
  Progress progress("sample", request.rows(), "rows");
  const int64_t rows = request.rows();
  v1::SampleStreamRequest stream;
  *stream.mutable_sample() = std::move(request);
  const auto on_chunk = [&](const v1::SampleChunk& chunk) -> absl::Status {
    progress.Advance(chunk.rows());
    Expand(chunk.row_status(), chunk.rows(), *whole.mutable_row_status());
    Expand(chunk.nfe(), chunk.rows(), *whole.mutable_nfe());
    Expand(chunk.correction_evaluations(), chunk.rows(), *whole.mutable_correction_evaluations());
    Expand(chunk.macs(), chunk.rows(), *whole.mutable_macs());
    Expand(chunk.error_bound(), chunk.rows(), *whole.mutable_error_bound());
    Expand(chunk.log_density_error(), chunk.rows(), *whole.mutable_log_density_error());
    if (chunk.rows() == 0) return absl::OkStatus();
    HS_ASSIGN_OR_RETURN(HostTensor part, FromWire(chunk.samples()));
    points.push_back(std::move(part));
    if (chunk.has_log_density()) {
      HS_ASSIGN_OR_RETURN(HostTensor density, FromWire(chunk.log_density()));
      log_densities.push_back(std::move(density));
    }
    return absl::OkStatus();
  };
  HS_ASSIGN_OR_RETURN(v1::SolveInfo summary,
                      client.SampleStream(std::move(stream), DeadlineFromFlags(), on_chunk));
  summary.mutable_row_status()->Swap(whole.mutable_row_status());
  summary.mutable_nfe()->Swap(whole.mutable_nfe());
  summary.mutable_correction_evaluations()->Swap(whole.mutable_correction_evaluations());
  summary.mutable_macs()->Swap(whole.mutable_macs());
  summary.mutable_error_bound()->Swap(whole.mutable_error_bound());
  summary.mutable_log_density_error()->Swap(whole.mutable_log_density_error());
  Samples samples{.points = JoinRows(points), .log_density = JoinRows(log_densities)};
  samples.ledger.Add(summary, rows);
  return samples;
}

std::string PrintSamplesCsv(const Samples& samples) {
  const int64_t rows = samples.points.shape[0];
  auto header = CoordinateNames(samples.points.elements() / rows);
  if (!samples.log_density.bytes.empty()) header.push_back("log_density");
  return PrintCsv(header, samples.points, samples.log_density);
}

std::string ScatterPlot(const std::string& title, const HostTensor& points) {
  std::string script = absl::StrCat(
      "set terminal pngcairo size 800,800 noenhanced\nset title ", GnuplotQuoted(title),
      "\nset size ratio -1\nset grid\nunset key\nset datafile separator ','\n",
      "plot '-' using 1:2 with points pointtype 7 pointsize 0.25 linecolor rgb '#301060a0'\n");
  const std::string lines = PrintCsv({"# x0", "x1"}, points, HostTensor());
  return absl::StrCat(script, lines, "e\n");
}

absl::Status WritePicture(const std::string& path, const Samples& samples) {
  const HostTensor& points = samples.points;
  if (points.shape.size() != 2 || points.shape[1] != 2) {
    return WithWayOut(
        absl::FailedPreconditionError(absl::StrCat(
            "a picture needs two-dimensional samples, these have shape ", ShapeText(points.shape))),
        "write a .csv instead");
  }
  const SolveLedger& ledger = samples.ledger;
  const std::string title =
      absl::StrCat(ledger.model(), ", ", ledger.plan(), ", ", Counted(ledger.rows(), "sample"),
                   ", ", ShortNumber(ledger.nfe_mean()), " NFE a row");
  const absl::StatusOr<std::string> png = RunGnuplot(ScatterPlot(title, points));
  if (!png.ok()) return WithWayOut(png.status(), "install gnuplot, or write a .csv instead");
  return WriteOutFile(path, *png);
}

absl::Status WriteSamples(const std::string& path, const Samples& samples) {
  if (path.ends_with(".csv")) return WriteOutFile(path, PrintSamplesCsv(samples));
  if (path.ends_with(".png")) return WritePicture(path, samples);
  std::map<std::string, TensorView, std::less<>> tensors;
  tensors["x"] = samples.points.view();
  if (!samples.log_density.bytes.empty()) tensors["log_density"] = samples.log_density.view();
  return WriteOutFile(path, SerializeSafetensors(tensors));
}

void Print(const Samples& samples, const std::string& out, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    JsonWriter json;
    json.BeginObject();
    samples.ledger.WriteFields(json);
    json.Field("seed", absl::GetFlag(FLAGS_seed))
        .Field("first_row", absl::GetFlag(FLAGS_first_row));
    if (!out.empty()) json.Field("out", out);
    if (out.empty()) json.Field("samples", samples.points);
    if (out.empty() && !samples.log_density.bytes.empty()) {
      json.Field("log_density", samples.log_density);
    }
    json.EndObject();
    PrintOut(json.Take() + "\n");
  } else if (out.empty()) {
    const std::string summary = samples.ledger.Summary() + "\n";
    if (PrintOut(PrintSamplesCsv(samples))) std::fputs(summary.c_str(), stderr);
  } else {
    PrintOut(absl::StrCat(samples.ledger.Summary(), "\nwritten to ", out, "\n"));
  }
}

absl::Status CheckOut(const std::string& out) {
  if (out.empty() || out.ends_with(".csv") || out.ends_with(".png") ||
      out.ends_with(".safetensors")) {
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat("--out=", out,
                                 ": the name must end in .csv, .png or "
                                 ".safetensors"));
}

}  // namespace

absl::StatusOr<int64_t> RunSample(const Arguments&) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  HS_ASSIGN_OR_RETURN(const Plan plan, PlanFromText("plan", absl::GetFlag(FLAGS_plan)));
  const std::string out = absl::GetFlag(FLAGS_out);
  HS_RETURN_IF_ERROR(CheckOut(out));
  const int64_t rows = absl::GetFlag(FLAGS_rows);
  Client client(ClientOptionsFromFlags());
  HS_ASSIGN_OR_RETURN(const v1::GetModelReply model, ChooseModel(client));
  v1::SampleRequest request;
  *request.mutable_options() = SolveOptionsFromFlags(model, plan);
  HS_ASSIGN_OR_RETURN(const RowTerms terms, RowTermsFromFlags(model, plan, rows));
  SetRowTerms(terms, 0, rows, *request.mutable_options());
  request.set_rows(rows);
  request.set_seed(absl::GetFlag(FLAGS_seed));
  request.set_first_row(absl::GetFlag(FLAGS_first_row));
  request.set_log_density(absl::GetFlag(FLAGS_log_density));
  const int64_t reply_bytes = rows * (ElementCount(StateShape(model)).value_or(1) + 1) *
                              static_cast<int64_t>(sizeof(double));
  HS_ASSIGN_OR_RETURN(const Samples samples,
                      rows <= kUnaryRowsMax && reply_bytes <= kReplyBytesUnasked
                          ? Draw(client, std::move(request))
                          : DrawStream(client, std::move(request)));
  if (!out.empty()) HS_RETURN_IF_ERROR(WriteSamples(out, samples));
  Print(samples, out, format);
  return samples.ledger.failed_rows();
}

}  // namespace hyperserve
