#include "core/model/repository/generation_files.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/model/spec/proto_json.h"
#include "hyperserve/v1/model.pb.h"

namespace hyperserve {
namespace {

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

absl::Status CheckManifest(const GenerationFiles& files) {
  const absl::StatusOr<v1::Manifest> manifest =
      ParseFileJson<v1::Manifest>(files.at(kManifestName));
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

}  // namespace

const GenerationFileRule* FindGenerationFileRule(std::string_view name) {
  for (const GenerationFileRule& rule : kGenerationFileRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

std::string GenerationFileNames() {
  return absl::StrJoin(
      kGenerationFileRules, ", ",
      [](std::string* out, const GenerationFileRule& rule) { out->append(rule.name); });
}

absl::Status CheckGenerationFiles(const GenerationFiles& files) {
  for (const auto& [name, bytes] : files) {
    const GenerationFileRule* rule = FindGenerationFileRule(name);
    if (rule == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("file '", name.substr(0, 80),
                       "' does not belong in a generation; known: ", GenerationFileNames()));
    }
    if (static_cast<int64_t>(bytes.size()) > rule->bytes_max) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", bytes.size(), " bytes, at most ",
                                                     rule->bytes_max, " are taken"));
    }
  }
  for (const GenerationFileRule& rule : kGenerationFileRules) {
    if (rule.required && !files.contains(std::string(rule.name))) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(rule.name), " is missing"));
    }
  }
  return files.contains(kManifestName) ? CheckManifest(files) : absl::OkStatus();
}

std::string PrintManifest(const GenerationFiles& files) {
  v1::Manifest manifest;
  manifest.set_format(kFileFormat);
  for (const auto& [name, bytes] : files) {
    if (name == kManifestName) continue;
    v1::Manifest::File& entry = *manifest.add_files();
    entry.set_name(name);
    entry.set_bytes(static_cast<int32_t>(bytes.size()));
    entry.set_sha256(Sha256Hex(bytes));
  }
  return PrintProtoJson(manifest);
}

}  // namespace hyperserve
