#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "client/command/commands.h"
#include "client/frame/command.h"
#include "client/frame/json_writer.h"
#include "client/frame/output.h"
#include "client/frame/session.h"
#include "client/frame/table.h"
#include "core/base/status.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {
namespace {

void WriteCorrection(const v1::CorrectionInfo& correction, JsonWriter& json) {
  json.BeginObject().Field("method", correction.method());
  json.Field("direction", correction.direction()).Field("generation", correction.generation());
  json.Field("previous_generation", correction.previous_generation());
  json.Field("eps_range", correction.eps_range()).Field("steps", correction.steps());
  json.Field("macs", correction.macs()).Field("problem", correction.problem());
  json.Key("provenance").BeginObject();
  for (const auto& [key, value] : correction.provenance()) json.Field(key, value);
  json.EndObject().EndObject();
}

void WriteSummaryFields(const v1::ModelSummary& model, JsonWriter& json) {
  json.Field("name", model.name()).Field("kind", model.kind());
  json.Field("base_digest", model.base_digest()).Field("input_shape", model.input_shape());
  json.Field("default_plan", model.default_plan());
  json.Field("default_plan_problem", model.default_plan_problem());
  json.Field("problem", model.problem()).Field("brings_code", model.brings_code());
  json.Key("corrections").BeginArray();
  for (const auto& correction : model.corrections()) WriteCorrection(correction, json);
  json.EndArray();
}

constexpr char kCodeLine[] =
    "its field is code, field.pt2, which runs with all rights of the daemon: no log-densities, "
    "derivatives or tier double\n";

bool Served(const v1::CorrectionInfo& correction) { return correction.generation() != 0; }

std::string CorrectionText(const v1::CorrectionInfo& correction) {
  const bool learned = correction.method() == "learned";
  std::string text = absl::StrCat(learned ? "" : "hyper_", correction.method());
  if (Served(correction)) {
    absl::StrAppend(&text, " generation ", correction.generation());
  } else {
    absl::StrAppend(&text, ": none served");
  }
  if (!correction.problem().empty()) absl::StrAppend(&text, " (", correction.problem(), ")");
  return text;
}

bool Hypersolved(const v1::PlanInfo& plan) {
  return absl::StartsWith(plan.plan(), "hyper_") || absl::StartsWith(plan.plan(), "learned:");
}

void PrintProblem(const v1::ModelSummary& model) {
  if (!model.problem().empty()) {
    PrintOut(absl::StrCat(model.name(), ": not used: ", model.problem(), "\n"));
  }
  if (!model.default_plan_problem().empty()) {
    PrintOut(absl::StrCat(model.name(), ": ", model.default_plan_problem(), "\n"));
  }
}

void PrintList(const v1::ListModelsReply& list, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    JsonWriter json;
    json.BeginObject().Key("models").BeginArray();
    for (const v1::ModelSummary& model : list.models()) {
      json.BeginObject();
      WriteSummaryFields(model, json);
      json.EndObject();
    }
    json.EndArray().EndObject();
    PrintOut(json.Take() + "\n");
    return;
  }
  TextTable table({"model", "kind", "input", "default plan", "corrections"});
  for (const v1::ModelSummary& model : list.models()) {
    std::vector<std::string> corrections;
    for (const auto& correction : model.corrections()) {
      corrections.push_back(CorrectionText(correction));
    }
    table.Add({model.name(), model.kind(),
               absl::StrCat("[", absl::StrJoin(model.input_shape(), ", "), "]"),
               model.default_plan(), absl::StrJoin(corrections, ", ")});
  }
  PrintOut(table.Print());
  for (const v1::ModelSummary& model : list.models()) PrintProblem(model);
}

void PrintModelJson(const v1::GetModelReply& model) {
  JsonWriter json;
  json.BeginObject();
  WriteSummaryFields(model.model(), json);
  json.Field("labels", model.labels()).Field("state_shape", model.state_shape());
  json.Field("field_macs", model.field_macs()).Field("stem_macs", model.stem_macs());
  json.Field("head_macs", model.head_macs());
  json.Field("calibration_device", model.calibration_device()).Key("plans").BeginArray();
  const bool labels = IsClassifier(model);
  for (const v1::PlanInfo& plan : model.plans()) {
    json.BeginObject().Field("plan", plan.plan()).Field("error_mean", plan.error_mean());
    json.Field("error_p99", plan.error_p99()).Field("error_max", plan.error_max());
    json.Key("log_density_error");
    plan.has_log_density_error() ? json.Value(plan.log_density_error()) : json.Null();
    json.Key("agreement");
    labels ? json.Value(plan.agreement()) : json.Null();
    json.Field("nfe", plan.nfe());
    json.Field("correction_evaluations", plan.correction_evaluations());
    json.Field("macs", plan.macs()).Field("seconds_per_row", plan.seconds_per_row());
    json.Key("times").BeginArray();
    for (const auto& time : plan.times()) {
      json.BeginObject().Field("rows", time.rows()).Field("seconds", time.seconds()).EndObject();
    }
    json.EndArray().Field("heavy_tail", plan.heavy_tail()).Key("wins");
    (Hypersolved(plan) ? json.Value(plan.wins()) : json.Null()).Key("bound_factor");
    (plan.has_bound_factor() ? json.Value(plan.bound_factor()) : json.Null()).EndObject();
  }
  json.EndArray().Field("spec_json", model.spec_json()).EndObject();
  PrintOut(json.Take() + "\n");
}

void PrintModelTable(const v1::GetModelReply& model) {
  const v1::ModelSummary& summary = model.model();
  PrintOut(absl::StrFormat("%s: %s, input [%s], state [%s], default plan %s\n", summary.name(),
                           summary.kind(), absl::StrJoin(summary.input_shape(), ", "),
                           absl::StrJoin(model.state_shape(), ", "), summary.default_plan()));
  PrintOut(absl::StrFormat("base %s; MACs: stem %d, field %d, head %d\n", summary.base_digest(),
                           model.stem_macs(), model.field_macs(), model.head_macs()));
  if (summary.brings_code()) PrintOut(kCodeLine);
  for (const auto& correction : summary.corrections()) {
    std::string line = CorrectionText(correction);
    if (Served(correction)) {
      if (!correction.eps_range().empty()) {
        absl::StrAppend(&line, ", eps in [", absl::StrJoin(correction.eps_range(), ", "), "]");
      }
      absl::StrAppend(&line, ", previous ", correction.previous_generation());
    }
    PrintOut(line + "\n");
  }
  PrintProblem(summary);
  if (model.plans().empty()) return;
  TextTable table(
      {"plan", "error", "99 %", "max", "agree %", "NFE", "corr.", "MACs", "ms/row", "wins"});
  for (const v1::PlanInfo& plan : model.plans()) {
    table.Add({plan.plan(), ShortNumber(plan.error_mean()), ShortNumber(plan.error_p99()),
               ShortNumber(plan.error_max()),
               IsClassifier(model) ? ShortNumber(100 * plan.agreement()) : "-",
               ShortNumber(plan.nfe()), ShortNumber(plan.correction_evaluations()),
               ShortNumber(plan.macs()), ShortNumber(1e3 * plan.seconds_per_row()),
               !Hypersolved(plan)  ? "-"
               : plan.heavy_tail() ? "heavy tail"
               : plan.wins()       ? "yes"
                                   : "no"});
  }
  PrintOut(absl::StrCat("measured on ", model.calibration_device(), ":\n", table.Print()));
}

}  // namespace

absl::StatusOr<int64_t> RunModels(const Arguments& arguments) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  Client client(ClientOptionsFromFlags());
  if (arguments.empty()) {
    HS_ASSIGN_OR_RETURN(const v1::ListModelsReply list, client.ListModels(DeadlineFromFlags()));
    PrintList(list, format);
    return 0;
  }
  HS_ASSIGN_OR_RETURN(const v1::GetModelReply model,
                      client.GetModel(arguments[0], DeadlineFromFlags()));
  if (format == OutputFormat::kJson) {
    PrintModelJson(model);
  } else {
    PrintModelTable(model);
  }
  return 0;
}

}  // namespace hyperserve
