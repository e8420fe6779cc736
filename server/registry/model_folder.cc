#include "server/registry/model_folder.h"

#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "server/registry/candidate.h"

namespace hyperserve {
namespace {

constexpr const char* kModelFiles[] = {"model.json", "weights.safetensors", kFieldPackageFile,
                                       "calibration.json"};
constexpr std::time_t kSettledSeconds = 2;

struct stat StatOf(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) file = {};
  return file;
}

void AppendStamp(const std::string& path, std::string& stamp) {
  const struct stat file = StatOf(path);
  absl::StrAppend(&stamp, file.st_ino, " ", file.st_size, " ", file.st_mtim.tv_sec, ".",
                  file.st_mtim.tv_nsec, ";");
}

}  // namespace

std::string StampOfHypersolvers(const std::string& hypersolver_folder) {
  std::string stamp;
  for (const char* name : {"/ACTIVE", "/VERDICTS.json"}) {
    AppendStamp(hypersolver_folder + name, stamp);
  }
  return stamp;
}

std::string StampOfModel(const std::string& model_folder) {
  std::string stamp;
  for (const char* name : kModelFiles) AppendStamp(absl::StrCat(model_folder, "/", name), stamp);
  return stamp;
}

bool IsSettled(const std::string& model_folder) {
  const std::time_t now = std::time(nullptr);
  for (const char* name : kModelFiles) {
    if (StatOf(absl::StrCat(model_folder, "/", name)).st_ctim.tv_sec > now - kSettledSeconds) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<std::shared_ptr<ServedModel>> ReadModelFolder(
    const std::string& model_folder, const std::set<std::string>& allow_code) {
  auto served = std::make_shared<ServedModel>();
  served->name = std::filesystem::path(model_folder).filename().string();
  HS_RETURN_IF_ERROR(CheckName(served->name));
  HS_ASSIGN_OR_RETURN(served->spec_json,
                      ReadFile(model_folder + "/model.json", kModelJsonBytesMax));
  HS_ASSIGN_OR_RETURN(std::string weights,
                      ReadFile(model_folder + "/weights.safetensors", kModelWeightsBytesMax));
  HS_ASSIGN_OR_RETURN(const std::string package, ReadFieldPackage(model_folder));
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Parse(std::move(weights));
  if (!file.ok()) return Annotate(file.status(), "weights.safetensors");
  const bool allowed = allow_code.contains(served->name);
  HS_ASSIGN_OR_RETURN(served->model,
                      Model::FromFile(served->spec_json, *std::move(file), package,
                                      allowed ? FieldCode::kRun : FieldCode::kRefused));
  absl::StatusOr<Calibration> calibration =
      LoadCalibration(model_folder + "/calibration.json", *served->model);
  if (calibration.ok()) {
    served->calibration = *std::move(calibration);
  } else if (!absl::IsNotFound(calibration.status())) {
    // The problem goes to clients, who need not know the server's paths.
    served->problem =
        absl::StrReplaceAll(absl::StrCat("calibration.json: ", calibration.status().message()),
                            {{model_folder + "/", ""}});
  }
  return served;
}

}  // namespace hyperserve
