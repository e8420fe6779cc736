// The JSON files of a repository: MANIFEST.json, VERDICTS.json, calibration.json.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/model/repository/manifest.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/proto_json.h"
#include "hyperserve/v1/model.pb.h"

namespace hyperserve {
namespace {

constexpr int kFormat = 1;

std::string VerdictsPath(const std::string& hypersolver_folder) {
  return absl::StrCat(hypersolver_folder, "/VERDICTS.json");
}

template <class Message>
absl::StatusOr<Message> ParseFormat1(std::string_view json) {
  Message message;
  HS_RETURN_IF_ERROR(ParseProtoJson(json, &message));
  if (message.format() != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("format is ", message.format(), ", this program reads ", kFormat));
  }
  return message;
}

absl::Status CheckManifestEntry(const v1::Manifest::File& entry, const GenerationFiles& files) {
  const auto file = files.find(entry.name());
  if (file == files.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(entry.name(), ": stands in ", kManifestName, " but is not there"));
  }
  if (entry.bytes() != static_cast<int64_t>(file->second.size())) {
    return absl::FailedPreconditionError(absl::StrCat(entry.name(), ": ", file->second.size(),
                                                      " bytes, ", kManifestName, " says ",
                                                      entry.bytes()));
  }
  const std::string sha256 = Sha256Hex(file->second);
  if (entry.sha256() != sha256) {
    return absl::FailedPreconditionError(absl::StrCat(entry.name(), ": SHA-256 is ", sha256, ", ",
                                                      kManifestName, " says ", entry.sha256()));
  }
  return absl::OkStatus();
}

// A plan that says itself what is done: neither a default nor an automatic one.
absl::StatusOr<Plan> ParseDefinitePlan(const std::string& text) {
  HS_ASSIGN_OR_RETURN(Plan plan, ParsePlan(text));
  if (plan.fixed() != nullptr || plan.adaptive() != nullptr) return plan;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' names no method and steps or tolerance, as dopri5:1e-5 does"));
}

absl::Status CheckCalibration(const Calibration& calibration) {
  if (!calibration.default_plan.empty()) {
    const absl::StatusOr<Plan> plan = ParseDefinitePlan(calibration.default_plan);
    if (!plan.ok()) return Annotate(plan.status(), "default_plan");
    if (plan->tier == Tier::kFast) {
      return absl::InvalidArgumentError(absl::StrCat("default_plan: '", calibration.default_plan,
                                                     "': tier fast is not built yet"));
    }
  }
  for (const PlanCalibration& plan : calibration.plans) {
    HS_ASSIGN_OR_RETURN(const Plan parsed, ParseDefinitePlan(plan.plan));
    if (PrintPlan(parsed) != plan.plan) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan '", plan.plan, "' is spelled '", PrintPlan(parsed), "'"));
    }
    for (const auto& [name, value] : {std::pair("error_mean", plan.error_mean),
                                      {"error_max", plan.error_max},
                                      {"agreement", plan.agreement},
                                      {"nfe", plan.nfe},
                                      {"correction_evaluations", plan.correction_evaluations},
                                      {"macs", plan.macs},
                                      {"seconds_per_row", plan.seconds_per_row}}) {
      if (!std::isfinite(value) || value < 0.0) {
        return absl::InvalidArgumentError(
            absl::StrCat("plan '", plan.plan, "': ", name, " is ", value,
                         ", which is not a finite number of at least 0"));
      }
    }
  }
  return absl::OkStatus();
}

// Reasons quote what candidates contain, which may be any bytes; JSON takes UTF-8 only.
std::string Printable(std::string text) {
  constexpr size_t kReasonBytesMax = 4096;
  text.resize(std::min(text.size(), kReasonBytesMax));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace

std::string PrintManifest(const GenerationFiles& files) {
  v1::Manifest manifest;
  manifest.set_format(kFormat);
  for (const auto& [name, bytes] : files) {
    if (name == kManifestName) continue;
    v1::Manifest::File& entry = *manifest.add_files();
    entry.set_name(name);
    entry.set_bytes(static_cast<int32_t>(bytes.size()));
    entry.set_sha256(Sha256Hex(bytes));
  }
  return PrintProtoJson(manifest);
}

absl::Status CheckManifest(const GenerationFiles& files) {
  const absl::StatusOr<v1::Manifest> manifest = ParseFormat1<v1::Manifest>(files.at(kManifestName));
  if (!manifest.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(kManifestName, ": ", manifest.status().message()));
  }
  std::set<std::string> listed = {kManifestName};
  for (const v1::Manifest::File& entry : manifest->files()) {
    HS_RETURN_IF_ERROR(CheckManifestEntry(entry, files));
    listed.insert(entry.name());
  }
  for (const auto& [name, bytes] : files) {
    if (!listed.contains(name)) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, ": does not stand in ", kManifestName));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<int64_t, Verdict>> ReadVerdicts(const std::string& hypersolver_folder) {
  const std::string path = VerdictsPath(hypersolver_folder);
  const absl::StatusOr<std::string> json = ReadFile(path, kVerdictsBytesMax);
  std::map<int64_t, Verdict> verdicts;
  if (absl::IsNotFound(json.status())) return verdicts;
  if (!json.ok()) return json.status();
  const absl::StatusOr<v1::Verdicts> parsed = ParseFormat1<v1::Verdicts>(*json);
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  for (const v1::Verdicts::Verdict& verdict : parsed->verdicts()) {
    if (verdict.generation() < 1 || verdict.generation() > kGenerationMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", verdict.generation(), " is not a generation"));
    }
    verdicts[verdict.generation()] = {.passed = verdict.passed(), .reason = verdict.reason()};
  }
  return verdicts;
}

absl::Status WriteVerdicts(const std::string& hypersolver_folder,
                           const std::map<int64_t, Verdict>& verdicts) {
  v1::Verdicts message;
  message.set_format(kFormat);
  for (const auto& [generation, verdict] : verdicts) {
    v1::Verdicts::Verdict& entry = *message.add_verdicts();
    entry.set_generation(static_cast<int32_t>(generation));
    entry.set_passed(verdict.passed);
    entry.set_reason(Printable(verdict.reason));
  }
  return WriteFileAtomically(VerdictsPath(hypersolver_folder), PrintProtoJson(message));
}

absl::StatusOr<Calibration> ParseCalibration(std::string_view json) {
  HS_ASSIGN_OR_RETURN(const v1::Calibration message, ParseFormat1<v1::Calibration>(json));
  Calibration calibration = {.base_digest = message.base_digest(),
                             .default_plan = message.default_plan(),
                             .reference = message.reference(),
                             .device = message.device(),
                             .rows = message.rows()};
  for (const v1::Calibration::Plan& plan : message.plans()) {
    calibration.plans.push_back({.plan = plan.plan(),
                                 .error_mean = plan.error_mean(),
                                 .error_max = plan.error_max(),
                                 .agreement = plan.agreement(),
                                 .nfe = plan.nfe(),
                                 .correction_evaluations = plan.correction_evaluations(),
                                 .macs = plan.macs(),
                                 .seconds_per_row = plan.seconds_per_row(),
                                 .batch = plan.batch(),
                                 .wins = plan.wins()});
  }
  HS_RETURN_IF_ERROR(CheckCalibration(calibration));
  return calibration;
}

std::string PrintCalibration(const Calibration& calibration) {
  v1::Calibration message;
  message.set_format(kFormat);
  message.set_base_digest(calibration.base_digest);
  message.set_default_plan(calibration.default_plan);
  message.set_reference(calibration.reference);
  message.set_device(calibration.device);
  message.set_rows(calibration.rows);
  for (const PlanCalibration& plan : calibration.plans) {
    v1::Calibration::Plan& entry = *message.add_plans();
    entry.set_plan(plan.plan);
    entry.set_error_mean(plan.error_mean);
    entry.set_error_max(plan.error_max);
    entry.set_agreement(plan.agreement);
    entry.set_nfe(plan.nfe);
    entry.set_correction_evaluations(plan.correction_evaluations);
    entry.set_macs(plan.macs);
    entry.set_seconds_per_row(plan.seconds_per_row);
    entry.set_batch(plan.batch);
    entry.set_wins(plan.wins);
  }
  return PrintProtoJson(message);
}

}  // namespace hyperserve
