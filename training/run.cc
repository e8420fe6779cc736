#include "training/run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "core/engine/device.h"
#include "core/engine/device_memory.h"
#include "core/model/repository/repository.h"
#include "programs/progress.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {
namespace {

// What the command line says of fits, in the place of the recipe.
void Put(const CommandOptions& options, training::Optimiser& optimiser) {
  if (options.iterations > 0) optimiser.set_iterations(options.iterations);
  if (options.patience > 0) optimiser.set_patience(options.patience);
  if (options.seconds > 0) optimiser.set_seconds(options.seconds);
}

}  // namespace

std::string TrainingRun::TimeText() const {
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begun;
  return DurationText(time.count());
}

absl::StatusOr<std::unique_ptr<TrainingRun>> Begin(const CommandOptions& options) {
  if (options.recipe.empty() || options.models.empty()) {
    return absl::InvalidArgumentError("--recipe and --models are needed");
  }
  if (options.threads < 1) return absl::InvalidArgumentError("--threads is at least 1");
  at::set_num_threads(options.threads);
  auto run = std::make_unique<TrainingRun>();
  HS_ASSIGN_OR_RETURN(run->recipe, ReadRecipe(options.recipe));
  if (run->recipe.has_fit()) Put(options, *run->recipe.mutable_fit()->mutable_optimiser());
  if (run->recipe.has_hypersolver()) {
    Put(options, *run->recipe.mutable_hypersolver()->mutable_optimiser());
  }
  if (!options.evaluations.empty()) {
    HS_RETURN_IF_ERROR(KeepEvaluations(options.evaluations, run->recipe));
  }
  run->model_folder = options.models + "/" + run->recipe.name();
  const std::vector<std::string> allowed = absl::StrSplit(options.allow_code, ',');
  if (std::ranges::find(allowed, run->recipe.name()) != allowed.end()) {
    run->field_code = FieldCode::kRun;
  }
  HS_ASSIGN_OR_RETURN(run->device, FindDevice(options.device));
  HS_ASSIGN_OR_RETURN(run->runtime, MakeDeviceRuntime(options.device));
  if (options.device_memory_max > 0) BoundMemory(options.device, options.device_memory_max);
  return run;
}

absl::StatusOr<std::shared_ptr<const Model>> LoadBase(const TrainingRun& run) {
  HS_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model,
                      Model::Load(run.model_folder, run.field_code));
  HS_RETURN_IF_ERROR(Annotate(CheckConditionSource(model->spec()), run.model_folder));
  return model;
}

absl::StatusOr<std::optional<int64_t>> GenerationToMeasure(const std::string& folder) {
  HS_ASSIGN_OR_RETURN(std::optional<int64_t> generation, ReadActive(folder));
  const std::vector<int64_t> all = ListGenerations(folder);
  if (!generation.has_value() && !all.empty()) generation = all.back();
  return generation;
}

}  // namespace hyperserve
