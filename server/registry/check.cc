#include "server/registry/check.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/one_line.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/registry/candidate.h"

namespace hyperserve {
namespace {

namespace fs = std::filesystem;
using ExpectedShapes = std::map<std::string, Shape>;

// Collects the lines; each begins with a file's path.
class Findings {
 public:
  void Add(const std::string& file, absl::string_view what) {
    AddLine(absl::StrCat(file, ": ", what));
  }
  // True where the status is OK.
  bool Check(const std::string& file, const absl::Status& status) {
    if (!status.ok()) Add(file, status.message());
    return status.ok();
  }
  // The same for a status whose message names the file.
  bool Check(const absl::Status& status) {
    if (!status.ok()) AddLine(std::string(status.message()));
    return status.ok();
  }
  size_t size() const { return lines_.size(); }
  std::vector<std::string> Take() { return std::move(lines_); }

 private:
  void AddLine(const std::string& line) { lines_.push_back(OneLine(line)); }

  std::vector<std::string> lines_;
};

// Reports every tensor that is missing, has another shape or is not expected, not only the first.
void CheckTensors(const std::string& path, const SafetensorsFile& file, ExpectedShapes expected,
                  Findings& findings) {
  for (const auto& [name, tensor] : file.tensors()) {
    const auto wanted = expected.find(name);
    if (wanted == expected.end()) {
      if (name.ends_with(".num_batches_tracked")) continue;
      findings.Add(path, absl::StrCat("tensor '", name, "' ", ShapeText(tensor.shape),
                                      " is not one that the spec expects"));
      continue;
    }
    if (wanted->second != tensor.shape) {
      findings.Add(path, absl::StrCat("tensor '", name, "' has shape ", ShapeText(tensor.shape),
                                      ", wanted ", ShapeText(wanted->second)));
    }
    expected.erase(wanted);
  }
  for (const auto& [name, shape] : expected) {
    findings.Add(path, absl::StrCat("tensor '", name, "' ", ShapeText(shape), " is missing"));
  }
}

ExpectedShapes ExpectedOf(const ModelSpec& spec) {
  ExpectedShapes expected = ExpectedTensors(spec.stem, "stem");
  expected.merge(ExpectedTensors(spec.field, "field"));
  expected.merge(ExpectedTensors(spec.head, "head"));
  return expected;
}

ExpectedShapes ExpectedOf(const HypersolverSpec& spec, const Shape& state_shape) {
  ExpectedShapes expected = ExpectedTensors(spec.net, "net");
  for (const TableSpec& table : spec.tables) {
    expected.merge(ExpectedCoefficients(table, state_shape));
    expected.merge(ExpectedTensors(table.net, TablePrefix(table.evaluations) + ".net"));
  }
  return expected;
}

// The model if it fits; null if something was found.
std::shared_ptr<const Model> CheckBase(const std::string& folder, Findings& findings) {
  const size_t before = findings.size();
  const std::string json_path = folder + "/model.json";
  const std::string weights_path = folder + "/weights.safetensors";
  const absl::StatusOr<std::string> json = ReadFile(json_path, kModelJsonBytesMax);
  absl::StatusOr<std::string> weights = ReadFile(weights_path, kModelWeightsBytesMax);
  findings.Check(json.status());
  findings.Check(weights.status());
  if (!json.ok() || !weights.ok()) return nullptr;
  const absl::StatusOr<ModelSpec> spec = ParseModelSpec(*json);
  if (!findings.Check(json_path, spec.status())) return nullptr;
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Parse(*std::move(weights));
  if (!findings.Check(weights_path, file.status())) return nullptr;
  CheckTensors(weights_path, *file, ExpectedOf(*spec), findings);
  const absl::StatusOr<std::string> package = ReadFieldPackage(folder);
  if (!findings.Check(package.status()) || findings.size() != before) return nullptr;
  absl::StatusOr<std::shared_ptr<const Model>> model =
      Model::FromFile(*json, *std::move(file), *package, FieldCode::kSealed);
  return findings.Check(folder, model.status()) ? *std::move(model) : nullptr;
}

void CheckFiles(const std::string& folder, const GenerationFiles& files, int64_t number,
                const MethodChoice& method, const Model& model, Findings& findings) {
  const size_t before = findings.size();
  const absl::StatusOr<HypersolverSpec> spec =
      ParseHypersolverSpec(files.at("hypersolver.json"), model.state_shape());
  if (!findings.Check(folder + "/hypersolver.json", spec.status())) return;
  const std::string weights_path = folder + "/weights.safetensors";
  const auto weights = SafetensorsFile::Parse(files.at("weights.safetensors"));
  if (!findings.Check(weights_path, weights.status())) return;
  CheckTensors(weights_path, *weights, ExpectedOf(*spec, model.state_shape()), findings);
  if (findings.size() != before) return;
  findings.Check(folder, CandidateOf(files, number, method, model).status());
}

void CheckGeneration(const std::string& folder, int64_t number, const MethodChoice& method,
                     const Model& model, Findings& findings) {
  const absl::StatusOr<GenerationFiles> files = ReadGeneration(folder);
  if (findings.Check(files.status())) CheckFiles(folder, *files, number, method, model, findings);
}

// Reports folders that look like generations but are never read: `01`, links.
void CheckEntries(const std::string& folder, const std::vector<int64_t>& generations,
                  Findings& findings) {
  std::set<std::string> known;
  for (const int64_t number : generations) known.insert(absl::StrCat(number));
  std::set<std::string> ignored;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code no_matter;
    if (it->is_directory(no_matter) && !name.starts_with('.') && !known.contains(name)) {
      ignored.insert(name);
    }
  }
  for (const std::string& name : ignored) {
    findings.Add(absl::StrCat(folder, "/", name),
                 absl::StrCat("is not read: a generation is a folder (no link) named by a number "
                              "from 1 to ",
                              kGenerationMax, " without leading zeros"));
  }
}

void CheckHypersolver(const std::string& folder, const MethodChoice& method, const Model& model,
                      Findings& findings) {
  const std::vector<int64_t> generations = ListGenerations(folder);
  const auto verdicts = ReadVerdicts(folder);
  const auto active = ReadActive(folder);
  findings.Check(verdicts.status());
  findings.Check(active.status());
  if (active.ok() && active->has_value()) {
    const int64_t number = **active;
    if (!std::binary_search(generations.begin(), generations.end(), number)) {
      findings.Add(folder + "/ACTIVE",
                   absl::StrCat("says generation ", number, ", which is not there"));
    } else if (verdicts.ok()) {
      const auto verdict = verdicts->find(number);
      if (verdict != verdicts->end() && !verdict->second.passed) {
        findings.Add(folder + "/ACTIVE",
                     absl::StrCat("says generation ", number,
                                  ", which was refused: ", verdict->second.reason));
      }
    }
  }
  CheckEntries(folder, generations, findings);
  // Refused generations are checked too: their problems are worth knowing.
  for (const int64_t number : generations) {
    CheckGeneration(absl::StrCat(folder, "/", number), number, method, model, findings);
  }
}

// Whoever names no plan gets the default one, so somebody must be able to run it.
void CheckDefaultPlan(const std::string& folder, const Calibration& calibration, const Model& model,
                      Findings& findings) {
  const Plan plan = DefaultPlanOf(calibration);
  if (!plan.hypersolved()) return;
  const FixedPlan& fixed = *plan.fixed();
  const std::string methods = HypersolverFolder(folder, fixed.method);
  std::string why = "there is no generation of this correction";
  for (const int64_t number : ListGenerations(methods)) {
    const auto candidate =
        LoadCandidate(absl::StrCat(methods, "/", number), number, fixed.method, model);
    absl::Status usable = candidate.status();
    if (usable.ok()) {
      const Hypersolver& correction = *candidate->generation->correction;
      usable = CheckApplies(correction, fixed, correction.spec().direction, model.spec().span);
    }
    const auto verdicts = ReadVerdicts(methods);
    if (usable.ok() && verdicts.ok() && verdicts->contains(number) &&
        !verdicts->at(number).passed) {
      usable = absl::FailedPreconditionError("it was refused");
    }
    if (usable.ok()) return;
    why = absl::StrCat("generation ", number, ": ", usable.message());
  }
  findings.Add(folder + "/calibration.json",
               absl::StrCat("nobody could run the default plan ", PrintPlan(plan), ": ", why));
}

void CheckMethodNames(const std::string& model_folder, Findings& findings) {
  std::error_code error;
  for (fs::directory_iterator it(model_folder + "/hypersolvers", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const auto method = ParseMethod(name);
    if (!findings.Check(it->path().string(), method.status())) continue;
    if (PrintMethod(*method) != name) {
      findings.Add(it->path().string(), absl::StrCat("is spelled ", PrintMethod(*method)));
    }
  }
}

void CheckModel(const std::string& folder, Findings& findings) {
  findings.Check(folder, CheckName(fs::path(folder).filename().string()));
  CheckMethodNames(folder, findings);
  const std::shared_ptr<const Model> model = CheckBase(folder, findings);
  if (model == nullptr) return;
  const std::string calibration_path = folder + "/calibration.json";
  const absl::StatusOr<Calibration> calibration = LoadCalibration(calibration_path, *model);
  if (calibration.ok()) {
    CheckDefaultPlan(folder, *calibration, *model, findings);
  } else if (!absl::IsNotFound(calibration.status())) {
    findings.Check(calibration_path, calibration.status());
  }
  for (const MethodChoice& method : ListHypersolverMethods(folder)) {
    CheckHypersolver(HypersolverFolder(folder, method), method, *model, findings);
  }
}

// The files of a candidate, which need no manifest before they are published.
absl::StatusOr<GenerationFiles> ReadCandidateFiles(const std::string& folder) {
  GenerationFiles files;
  for (const GenerationFileRule& rule : kGenerationFileRules) {
    const std::string name(rule.name);
    absl::StatusOr<std::string> bytes = ReadFile(absl::StrCat(folder, "/", name), rule.bytes_max);
    if (absl::IsNotFound(bytes.status())) continue;
    if (!bytes.ok()) return bytes.status();
    files[name] = *std::move(bytes);
  }
  HS_RETURN_IF_ERROR(Annotate(CheckGenerationFiles(files), folder));
  return files;
}

// A candidate that stands alone, against the model of `models` that it was made for; where it
// stands in a model's own folder, against that.
void CheckLoneCandidate(const std::string& folder, const std::string& models, Findings& findings) {
  const absl::StatusOr<GenerationFiles> files = ReadCandidateFiles(folder);
  if (!findings.Check(files.status())) return;
  std::vector<std::string> known = {
      fs::path(folder).parent_path().parent_path().parent_path().string()};
  if (const auto others = ListModelFolders(models); others.ok()) {
    known.insert(known.end(), others->begin(), others->end());
  }
  for (const std::string& one : known) {
    const absl::StatusOr<std::shared_ptr<const Model>> model = Model::Load(one, FieldCode::kSealed);
    if (!model.ok()) continue;
    const auto spec = ParseHypersolverSpec(files->at("hypersolver.json"), (*model)->state_shape());
    if (!spec.ok() || spec->base_digest != (*model)->base_digest()) continue;
    CheckFiles(folder, *files, /*number=*/1, spec->method, **model, findings);
    return;
  }
  findings.Add(folder + "/hypersolver.json",
               absl::StrCat("no model of '", models,
                            "' is its base: name its repository with --models, and compare "
                            "base_digest with the one that GetModel or calibration.json tells"));
}

}  // namespace

std::vector<std::string> CheckModelFolder(const std::string& folder, const std::string& models) {
  Findings findings;
  std::error_code error;
  const std::string path = fs::weakly_canonical(folder, error).string();
  if (fs::exists(fs::path(path) / "model.json", error)) {
    CheckModel(path, findings);
    return findings.Take();
  }
  if (fs::exists(fs::path(path) / "hypersolver.json", error)) {
    CheckLoneCandidate(path, models, findings);
    return findings.Take();
  }
  const absl::StatusOr<std::vector<std::string>> all = ListModelFolders(path);
  if (!findings.Check(all.status())) return findings.Take();
  if (all->empty()) {
    findings.Add(folder, "holds no model.json and no hypersolver.json, and no folder in it does");
  }
  for (const std::string& model : *all) CheckModel(model, findings);
  return findings.Take();
}

std::vector<std::string> ModelsWithCode(const std::string& folder) {
  std::error_code error;
  const std::string path = fs::weakly_canonical(folder, error).string();
  std::vector<std::string> models = {path};
  if (!fs::exists(fs::path(path) / "model.json", error)) {
    models = ListModelFolders(path).value_or(std::vector<std::string>());
  }
  std::vector<std::string> lines;
  for (const std::string& model : models) {
    const absl::StatusOr<std::string> package = ReadFieldPackage(model);
    if (!package.ok() || package->empty()) continue;
    lines.push_back(OneLine(absl::StrCat(
        model, "/", kFieldPackageFile, ": code, SHA-256 ", Sha256Hex(*package),
        "; a program runs it only with --allow_code=", fs::path(model).filename().string(),
        ", and then with all rights of that program: trust who made it")));
  }
  return lines;
}

}  // namespace hyperserve
