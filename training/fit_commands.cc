// The subcommands that fit: base models, corrections, learned solvers.
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/io/file.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "programs/stop.h"
#include "programs/time_after.h"
#include "training/bounds/bounds.h"
#include "training/command_options.h"
#include "training/commands.h"
#include "training/data/recipe.h"
#include "training/fit/fit_hypersolver.h"
#include "training/fit/fit_learned.h"
#include "training/fit/fit_model.h"
#include "training/measure/calibrate.h"
#include "training/measure/judge.h"
#include "training/measure/measure.h"
#include "training/measure/rivals.h"
#include "training/optimise/checkpoints.h"
#include "training/optimise/curve.h"
#include "training/optimise/device_memory.h"
#include "training/run.h"

namespace hyperserve {
namespace {

namespace fs = std::filesystem;

// Makes the output folder before the work, so that hours of it are not lost for a path that cannot
// be written, and removes what it made: work that is stopped leaves nothing. `way_out` tells the
// caller what to do if the folder cannot be made.
absl::Status CheckCanBeMade(const std::string& path, std::string_view way_out) {
  std::vector<fs::path> made;  // the deepest first
  std::error_code error;
  for (fs::path missing = path; !missing.empty() && !fs::exists(missing, error);
       missing = missing.parent_path()) {
    made.push_back(missing);
  }
  fs::create_directories(path, error);
  std::error_code not_empty;
  for (const fs::path& folder : made) fs::remove(folder, not_empty);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make ", path, ": ", error.message(), "; ", Absl(way_out)));
}

absl::Status CheckReplaces(const std::string& folder, bool replace) {
  std::error_code error;
  if (replace || !fs::exists(folder + "/model.json", error)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(folder,
                   " holds a model already; its weights would be lost, and corrections made for "
                   "them refused from then on: name another --models, or give --replace"));
}

// Removes model.json first and writes it last: if this is interrupted, there is no model rather
// than a mixture of two.
absl::Status WriteModel(const std::string& folder, const ModelFiles& files,
                        const Calibration& calibration) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) fs::remove(folder + "/model.json", error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot replace ", folder, "/model.json: ", error.message()));
  }
  RemoveAbandoned(folder);
  HS_RETURN_IF_ERROR(WriteFileAtomically(folder + "/weights.safetensors", files.weights));
  HS_RETURN_IF_ERROR(
      WriteFileAtomically(folder + "/calibration.json", PrintCalibration(calibration)));
  return WriteFileAtomically(folder + "/model.json", files.model_json);
}

// The folder's name of what the recipe fits.
std::string MethodOf(const Recipe& recipe) {
  return recipe.hypersolver().has_solver() ? std::string("learned")
                                           : recipe.hypersolver().net().method();
}

// The folder of the generation that --from names; "active": the served one of the recipe's method,
// else its newest.
absl::StatusOr<std::string> GenerationToStartFrom(const TrainingRun& run, const std::string& from) {
  if (from != "active") return from;
  HS_ASSIGN_OR_RETURN(const MethodChoice method, ParseMethod(MethodOf(run.recipe)));
  const std::string folder = HypersolverFolder(run.model_folder, method);
  HS_ASSIGN_OR_RETURN(const auto generation, GenerationToMeasure(folder));
  if (generation.has_value()) return absl::StrCat(folder, "/", *generation);
  return absl::NotFoundError(absl::StrCat("--from=active: ", folder, " holds no generation"));
}

// Where a run of this name keeps its checkpoints, beside the models and hidden from whoever lists
// them; null: the user wants none.
std::unique_ptr<Checkpoints> CheckpointsOf(const TrainingRun& run, const CommandOptions& options,
                                           const std::string& repository, const std::string& name,
                                           std::map<std::string, std::string> identity) {
  if (options.checkpoint_every <= 0 && !options.resume) return nullptr;
  identity["recipe"] = RecipeDigest(run.recipe);
  return std::make_unique<Checkpoints>(Checkpoints::Options{
      .folder = absl::StrCat(repository, "/.training/", run.recipe.name(), ".", name),
      .every = std::chrono::duration<double>(options.checkpoint_every > 0
                                                 ? options.checkpoint_every
                                                 : std::numeric_limits<double>::infinity()),
      .resume = options.resume,
      .identity = std::move(identity)});
}

// Runs that fit different tables side by side keep their checkpoints apart.
std::string RunName(const TrainingRun& run, const CommandOptions& options) {
  const std::string method = MethodOf(run.recipe);
  return options.evaluations.empty() ? method : absl::StrCat(method, "-", options.evaluations);
}

// Before a long fit, whose results could not be written after it.
absl::Status CheckCurve(const CommandOptions& options) {
  std::error_code error;
  if (options.curve.empty() || fs::is_directory(fs::absolute(options.curve).parent_path(), error)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("--curve=", options.curve, ": there is no such folder"));
}

absl::Status WriteCurves(const CommandOptions& options, const std::vector<Curve>& curves) {
  if (options.curve.empty()) return absl::OkStatus();
  return WriteFileAtomically(options.curve, CurvesText(curves));
}

absl::Status AddBounds(const TrainingRun& run, const HypersolverFitOptions& fit,
                       GenerationFiles& files) {
  const TimeAfter unknown;
  const BoundOptions bounds{.model = fit.model,
                            .data_folder = fit.data_folder,
                            .device = fit.device,
                            .runtime = fit.runtime};
  HS_RETURN_IF_ERROR(FitDistances(run.recipe, bounds, files));
  return CalibrateBounds(run.recipe, bounds, files);
}

std::string MemoryRemark(at::Device device) {
  const std::string text = DeviceMemoryText(device);
  return text.empty() ? text : "; " + text;
}

}  // namespace

absl::Status TrainModel(const CommandOptions& options) {
  HS_ASSIGN_OR_RETURN(const auto run, Begin(options));
  HS_RETURN_IF_ERROR(CheckReplaces(run->model_folder, options.replace));
  HS_RETURN_IF_ERROR(CheckCanBeMade(run->model_folder, "name another --models"));
  HS_RETURN_IF_ERROR(CheckCurve(options));
  HS_ASSIGN_OR_RETURN(const ModelSpec spec, RecipeModelSpec(run->recipe));
  HS_RETURN_IF_ERROR(CheckHeldOut(run->recipe, spec, options.data));
  ModelFitOptions fit;
  if (!options.from.empty()) {
    HS_ASSIGN_OR_RETURN(fit.start_from,
                        ReadFile(options.from + "/weights.safetensors", kModelWeightsBytesMax));
  }
  const auto checkpoints =
      CheckpointsOf(*run, options, options.models, "model", {{"start", Sha256Hex(fit.start_from)}});
  fit.checkpoints = checkpoints.get();
  fit.seconds_after = [&](const std::shared_ptr<const Model>& untrained) {
    return CalibrationSeconds(run->recipe, *run->runtime, untrained, options.data);
  };
  HS_ASSIGN_OR_RETURN(const ModelFiles files,
                      FitModel(run->recipe, options.data, run->device, fit));
  TimeAfter after;
  const std::string trained = run->TimeText();
  HS_ASSIGN_OR_RETURN(const auto model, Model::FromBytes(files.model_json, files.weights));
  HS_ASSIGN_OR_RETURN(Measurer measurer,
                      HeldOutMeasurer(run->recipe, *run->runtime, model,
                                      ServedDirection(model->spec()), options.data));
  after.Set(measurer.reference_seconds());  // Quality solves it once more
  Rivals rivals(*model, measurer);
  HS_ASSIGN_OR_RETURN(const Calibration calibration,
                      CalibrateModel(run->recipe, *run->runtime, *model, rivals));
  after.Set(0);
  HS_ASSIGN_OR_RETURN(const std::string quality,
                      Quality(run->recipe, *run->runtime, model, options.data));
  HS_RETURN_IF_ERROR(WriteUnlessStopped([&]() -> absl::Status {
    HS_RETURN_IF_ERROR(WriteCurves(options, {files.curve}));
    return WriteModel(run->model_folder, files, calibration);
  }));
  if (checkpoints != nullptr) checkpoints->Remove();
  absl::PrintF("%s%s: %s\n%strained in %s, all in %s, on %s%s; default plan %s\n%s\n",
               CalibrationTable(model->spec().kind, calibration.plans), run->recipe.name(), quality,
               files.remark.empty() ? "" : files.remark + "\n", trained, run->TimeText(),
               calibration.device, MemoryRemark(run->device), PrintPlan(DefaultPlanOf(calibration)),
               run->model_folder);
  return absl::OkStatus();
}

absl::Status TrainHypersolver(const CommandOptions& options) {
  HS_ASSIGN_OR_RETURN(const auto run, Begin(options));
  HypersolverFitOptions fit{.data_folder = options.data, .device = run->device};
  HS_ASSIGN_OR_RETURN(fit.model, LoadBase(*run));
  fit.runtime = run->runtime.get();
  std::map<std::string, std::string> identity = {{"base", fit.model->base_digest()},
                                                 {"start", Sha256Hex("")}};
  if (!options.from.empty()) {
    HS_ASSIGN_OR_RETURN(const std::string folder, GenerationToStartFrom(*run, options.from));
    HS_ASSIGN_OR_RETURN(fit.start_from, ReadGeneration(folder));
    identity["start"] = Sha256Hex(fit.start_from->at("weights.safetensors"));
  }
  const std::vector<std::string> joined = absl::StrSplit(options.join, ',', absl::SkipEmpty());
  for (const std::string& folder : joined) {
    HS_ASSIGN_OR_RETURN(fit.joined.emplace_back(), ReadGeneration(folder));
  }
  if (options.rows > 0) run->recipe.mutable_calibrate()->set_rows(options.rows);
  const std::string repository = options.out.empty() ? options.models : options.out;
  const std::string out = repository + "/" + run->recipe.name();
  HS_RETURN_IF_ERROR(CheckCanBeMade(out, "name another --out"));
  HS_RETURN_IF_ERROR(CheckCurve(options));
  const bool learned = run->recipe.hypersolver().has_solver();
  if (!learned && !fit.joined.empty()) {
    return absl::InvalidArgumentError("--join is for recipes with solver.learned");
  }
  std::unique_ptr<Checkpoints> checkpoints;  // a join fits nothing
  if (fit.joined.empty()) {
    checkpoints =
        CheckpointsOf(*run, options, repository, RunName(*run, options), std::move(identity));
  }
  fit.checkpoints = checkpoints.get();
  // Those of a part would be lost when it is joined.
  const bool bounded = learned && options.evaluations.empty();
  if (bounded) {
    fit.seconds_after = [&](const HypersolverSpec& spec, const Measurer& held_out) {
      return BoundSeconds(run->recipe, spec, held_out);
    };
  }
  HS_ASSIGN_OR_RETURN(FittedHypersolver fitted,
                      learned ? FitLearned(run->recipe, fit) : FitHypersolver(run->recipe, fit));
  if (bounded) HS_RETURN_IF_ERROR(AddBounds(*run, fit, fitted.files));
  const std::string folder = HypersolverFolder(out, fitted.spec.method);
  int64_t generation = 0;
  HS_RETURN_IF_ERROR(WriteUnlessStopped([&]() -> absl::Status {
    HS_RETURN_IF_ERROR(WriteCurves(options, fitted.curves));
    HS_ASSIGN_OR_RETURN(generation, WriteGeneration(folder, fitted.files));
    return absl::OkStatus();
  }));
  if (checkpoints != nullptr) checkpoints->Remove();
  std::vector<PlanCalibration> shown = fitted.base_plans;
  shown.insert(shown.end(), fitted.calibration.plans.begin(), fitted.calibration.plans.end());
  absl::PrintF("%s%s\n%s %s%s: claims %s; all in %s, on %s%s\n%s/%d\n",
               CalibrationTable(fit.model->spec().kind, shown), absl::StrJoin(fitted.remarks, "\n"),
               run->recipe.name(), learned ? "" : "hyper_", PrintMethod(fitted.spec.method),
               absl::StrJoin(fitted.spec.steps, " "), run->TimeText(), fitted.calibration.device,
               MemoryRemark(run->device), folder, generation);
  return absl::OkStatus();
}

}  // namespace hyperserve
