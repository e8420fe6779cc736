// The subcommands for bounds of single rows.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "programs/stop.h"
#include "programs/time_after.h"
#include "training/bounds/bounds.h"
#include "training/bounds/coverage.h"
#include "training/command_options.h"
#include "training/commands.h"
#include "training/data/dataset.h"
#include "training/run.h"

namespace hyperserve {
namespace {

// The folder of a model's learned solver, and the generation of it that is served, else its newest.
struct LearnedFolder {
  std::string folder, generation_folder;
};

absl::StatusOr<LearnedFolder> FindLearned(const TrainingRun& run) {
  const std::string folder =
      HypersolverFolder(run.model_folder, MethodChoice{.method = Method::kLearned});
  HS_ASSIGN_OR_RETURN(const auto generation, GenerationToMeasure(folder));
  if (generation) {
    return LearnedFolder{.folder = folder,
                         .generation_folder = absl::StrCat(folder, "/", *generation)};
  }
  return absl::NotFoundError(absl::StrCat(run.model_folder, " has no learned solver"));
}

// What was measured of the model's own plans; empty where nothing was.
absl::StatusOr<std::vector<PlanCalibration>> ClassicalPlans(const TrainingRun& run,
                                                            const Model& model) {
  const std::string path = run.model_folder + "/calibration.json";
  const absl::StatusOr<std::string> json = ReadFile(path, kCalibrationBytesMax);
  if (absl::IsNotFound(json.status())) return std::vector<PlanCalibration>();
  HS_RETURN_IF_ERROR(json.status());
  auto calibration = ParseCalibration(*json);
  if (!calibration.ok()) return Annotate(calibration.status(), path);
  if (calibration->base_digest == model.base_digest()) return std::move(calibration->plans);
  return absl::FailedPreconditionError(absl::StrCat(path, " was measured on another base"));
}

}  // namespace

absl::Status FitBounds(const CommandOptions& options) {
  HS_ASSIGN_OR_RETURN(const auto run, Begin(options));
  const TimeAfter unknown;
  HS_ASSIGN_OR_RETURN(const auto model, Model::Load(run->model_folder, run->field_code));
  HS_ASSIGN_OR_RETURN(const LearnedFolder learned, FindLearned(*run));
  HS_ASSIGN_OR_RETURN(GenerationFiles files, ReadGeneration(learned.generation_folder));
  const BoundOptions bounds{.model = model,
                            .data_folder = options.data,
                            .device = run->device,
                            .runtime = run->runtime.get(),
                            .rows = options.rows};
  HS_RETURN_IF_ERROR(FitDistances(run->recipe, bounds, files));
  HS_RETURN_IF_ERROR(CalibrateBounds(run->recipe, bounds, files));
  HS_ASSIGN_OR_RETURN(const Calibration calibration, CalibrationIn(files));
  for (const PlanCalibration& plan : calibration.plans) {
    absl::PrintF("%-16s %s\n", PrintPlan(plan.plan),
                 plan.bound ? absl::StrFormat("error at most %.4g times its distance, by %d rows",
                                              plan.bound->factor, plan.bound->rows)
                            : "no bound");
  }
  int64_t generation = 0;
  HS_RETURN_IF_ERROR(WriteUnlessStopped([&]() -> absl::Status {
    HS_ASSIGN_OR_RETURN(generation, WriteGeneration(learned.folder, files));
    return absl::OkStatus();
  }));
  absl::PrintF("all in %s\n%s/%d\n", run->TimeText(), learned.folder, generation);
  return absl::OkStatus();
}

absl::Status ShowCoverage(const CommandOptions& options) {
  HS_ASSIGN_OR_RETURN(const auto run, Begin(options));
  const TimeAfter unknown;
  HS_ASSIGN_OR_RETURN(const auto model, Model::Load(run->model_folder, run->field_code));
  HS_ASSIGN_OR_RETURN(LearnedFolder learned, FindLearned(*run));
  if (!options.from.empty()) learned.generation_folder = options.from;
  HS_ASSIGN_OR_RETURN(const GenerationFiles files, ReadGeneration(learned.generation_folder));
  HS_ASSIGN_OR_RETURN(const Calibration calibration, CalibrationIn(files));
  CoverageOptions coverage{
      .runtime = run->runtime.get(), .model = model, .batch = run->recipe.calibrate().batch()};
  HS_ASSIGN_OR_RETURN(coverage.solver, Hypersolver::Load(learned.generation_folder, *model));
  HS_ASSIGN_OR_RETURN(coverage.truth, ParsePlan(run->recipe.hypersolver().truth()));
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(run->recipe, model->spec(),
                                        coverage.solver->spec().direction, options.data));
  const int64_t rows = options.rows > 0 ? options.rows : run->recipe.calibrate().rows();
  HS_ASSIGN_OR_RETURN(const SolveInputs held_out, source.HeldOut(rows));
  HS_ASSIGN_OR_RETURN(coverage.classical, ClassicalPlans(*run, *model));
  HS_ASSIGN_OR_RETURN(const auto plans, SolveWithBounds(coverage, calibration, held_out));
  coverage.classical.clear();  // of shifted rows the bounds alone are told
  absl::PrintF(
      "%s, %d held-out rows, truth %s\n%s\none plan for all rows and plans per row, at a 99th "
      "percentile asked for\nfree, reused, paid: with the true errors known; tuned, reus.: a "
      "threshold for each plan, all paid and evaluations reused; serv.: as served\n%s",
      run->recipe.name(), held_out.count(), PrintPlan(coverage.truth), CoverageTable(plans),
      SavingsTable(plans));
  for (const ShiftedRows& shifted : Shifted(held_out)) {
    HS_ASSIGN_OR_RETURN(const auto others, SolveWithBounds(coverage, calibration, shifted.rows));
    absl::PrintF("\n%s\n%s", shifted.name, CoverageTable(others));
  }
  absl::PrintF("all in %s\n", run->TimeText());
  return absl::OkStatus();
}

}  // namespace hyperserve
