#include "core/model/repository/verdicts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/model/repository/generation_files.h"
#include "core/model/spec/proto_json.h"
#include "hyperserve/v1/model.pb.h"

namespace hyperserve {
namespace {

std::string VerdictsPath(const std::string& hypersolver_folder) {
  return absl::StrCat(hypersolver_folder, "/VERDICTS.json");
}

// Reasons may quote any bytes of a candidate's files, but JSON takes UTF-8 only.
std::string Printable(std::string text) {
  constexpr size_t kReasonBytesMax = 4096;
  text.resize(std::min(text.size(), kReasonBytesMax));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace

absl::StatusOr<std::map<int64_t, Verdict>> ReadVerdicts(const std::string& hypersolver_folder) {
  const std::string path = VerdictsPath(hypersolver_folder);
  const absl::StatusOr<std::string> json = ReadFile(path, kVerdictsBytesMax);
  std::map<int64_t, Verdict> verdicts;
  if (absl::IsNotFound(json.status())) return verdicts;
  if (!json.ok()) return json.status();
  const absl::StatusOr<v1::Verdicts> parsed = ParseFileJson<v1::Verdicts>(*json);
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
  message.set_format(kFileFormat);
  for (const auto& [generation, verdict] : verdicts) {
    v1::Verdicts::Verdict& entry = *message.add_verdicts();
    entry.set_generation(static_cast<int32_t>(generation));
    entry.set_passed(verdict.passed);
    entry.set_reason(Printable(verdict.reason));
  }
  return WriteFileAtomically(VerdictsPath(hypersolver_folder), PrintProtoJson(message));
}

}  // namespace hyperserve
