#include "training/commands.h"

#include <functional>
#include <memory>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/plan_error.h"
#include "core/io/file.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "programs/stop.h"
#include "training/bounds/bounds.h"
#include "training/measure/calibrate.h"
#include "training/measure/judge.h"
#include "training/measure/measure.h"
#include "training/measure/picture.h"
#include "training/measure/rivals.h"
#include "training/report/experiment.h"
#include "training/report/page.h"
#include "training/report/report.h"
#include "training/run.h"

namespace hyperserve {
namespace {

absl::StatusOr<std::vector<PlanCalibration>> MeasureCorrection(
    const TrainingRun& run, const std::shared_ptr<const Hypersolver>& correction, Rivals& rivals) {
  std::vector<Plan> plans;
  for (const int steps : correction->spec().steps) {
    plans.push_back(
        {.choice =
             FixedPlan{.method = correction->spec().method, .steps = steps, .hypersolved = true}});
  }
  HS_ASSIGN_OR_RETURN(auto measured,
                      MeasurePlans(run.recipe, plans, correction, rivals.measurer()));
  HS_RETURN_IF_ERROR(MarkAgainstRivals(rivals, measured));
  return measured;
}

// A correction that was measured: its method's folder and its generation's.
struct MeasuredCorrection {
  std::string folder, generation_folder;
  Direction direction;
  std::vector<PlanCalibration> plans;
};

// Chooses the default plan among the classical plans and those of corrections, which run in the
// direction that the default is for.
std::optional<Plan> ChooseDefault(const TrainingRun& run, const Model& model,
                                  std::vector<PlanCalibration> plans,
                                  const std::vector<MeasuredCorrection>& corrections) {
  for (const MeasuredCorrection& one : corrections) {
    if (one.direction != ServedDirection(model.spec())) continue;
    plans.insert(plans.end(), one.plans.begin(), one.plans.end());
  }
  return DefaultAmong(run.recipe, plans);
}

// What MeasureCorrections does with each correction.
using PlansOf = std::function<absl::StatusOr<std::vector<PlanCalibration>>(
    const std::string& generation_folder, const std::shared_ptr<const Hypersolver>& correction)>;

// The plans of each correction's served generation, or its newest.
absl::StatusOr<std::vector<MeasuredCorrection>> EachCorrection(const TrainingRun& run,
                                                               const Model& model,
                                                               const PlansOf& plans_of) {
  std::vector<MeasuredCorrection> corrections;
  for (const MethodChoice& method : ListHypersolverMethods(run.model_folder)) {
    const std::string folder = HypersolverFolder(run.model_folder, method);
    HS_ASSIGN_OR_RETURN(const auto generation, GenerationToMeasure(folder));
    if (!generation.has_value()) continue;
    const std::string generation_folder = absl::StrCat(folder, "/", *generation);
    const auto correction = Hypersolver::Load(generation_folder, model);
    if (!correction.ok()) {  // perhaps of another base, after `model --replace`
      absl::FPrintF(stderr, "%s is left out: %s\n", generation_folder,
                    correction.status().message());
      continue;
    }
    HS_ASSIGN_OR_RETURN(auto plans, plans_of(generation_folder, *correction));
    corrections.push_back(
        {folder, generation_folder, (*correction)->spec().direction, std::move(plans)});
  }
  return corrections;
}

// Measures them on the held-out rows. `served` are the rivals of the served direction.
absl::StatusOr<std::vector<MeasuredCorrection>> MeasureCorrections(
    const TrainingRun& run, const std::shared_ptr<const Model>& model,
    const std::string& data_folder, Rivals& served) {
  using Plans = absl::StatusOr<std::vector<PlanCalibration>>;
  return EachCorrection(
      run, *model,
      [&](const std::string&, const std::shared_ptr<const Hypersolver>& correction) -> Plans {
        const Direction direction = correction->spec().direction;
        if (direction == ServedDirection(model->spec())) {
          return MeasureCorrection(run, correction, served);
        }
        HS_ASSIGN_OR_RETURN(Measurer measurer, HeldOutMeasurer(run.recipe, *run.runtime, model,
                                                               direction, data_folder));
        Rivals rivals(*model, measurer);
        return MeasureCorrection(run, correction, rivals);
      });
}

absl::StatusOr<Calibration> ReadCalibrationOf(const Model& model, const std::string& folder) {
  const std::string path = folder + "/calibration.json";
  HS_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kCalibrationBytesMax));
  auto calibration = ParseCalibration(json);
  if (!calibration.ok()) return Annotate(calibration.status(), path);
  if (calibration->base_digest == model.base_digest()) return calibration;
  return absl::FailedPreconditionError(absl::StrCat(path, " was measured on another base"));
}

// Chooses the default plan again, among what stands in the files.
absl::Status ChooseAmongMeasured(const TrainingRun& run, const Model& model) {
  HS_ASSIGN_OR_RETURN(Calibration calibration, ReadCalibrationOf(model, run.model_folder));
  using Plans = absl::StatusOr<std::vector<PlanCalibration>>;
  HS_ASSIGN_OR_RETURN(
      const auto corrections,
      EachCorrection(run, model, [&](const std::string& folder, const auto&) -> Plans {
        HS_ASSIGN_OR_RETURN(auto one, ReadCalibrationOf(model, folder));
        return std::move(one.plans);
      }));
  calibration.default_error = run.recipe.calibrate().default_error();
  calibration.default_plan = ChooseDefault(run, model, calibration.plans, corrections);
  HS_RETURN_IF_ERROR(
      WriteFileAtomically(run.model_folder + "/calibration.json", PrintCalibration(calibration)));
  absl::PrintF("%s: default plan %s\n", run.recipe.name(), PrintPlan(DefaultPlanOf(calibration)));
  return absl::OkStatus();
}

BoundOptions BoundsOf(const TrainingRun& run, const std::shared_ptr<const Model>& model,
                      const std::string& data_folder) {
  return {.model = model,
          .data_folder = data_folder,
          .device = run.device,
          .runtime = run.runtime.get()};
}

// The files of a generation of the same weights with what was measured now.
absl::StatusOr<GenerationFiles> Renewed(const TrainingRun& run, const BoundOptions& options,
                                        const MeasuredCorrection& correction) {
  const Model& model = *options.model;
  HS_ASSIGN_OR_RETURN(GenerationFiles files, ReadGeneration(correction.generation_folder));
  Calibration calibration{.plans = correction.plans};
  FillCalibration(run.recipe, model, *run.runtime, calibration);
  files["calibration.json"] = PrintCalibration(calibration);
  files.erase(kManifestName);
  HS_ASSIGN_OR_RETURN(const HypersolverSpec spec,
                      ParseHypersolverSpec(files.at("hypersolver.json"), model.state_shape()));
  if (spec.learned()) HS_RETURN_IF_ERROR(CalibrateBounds(run.recipe, options, files));
  return files;
}

}  // namespace

absl::Status Calibrate(const CommandOptions& options) {
  HS_ASSIGN_OR_RETURN(const auto run, Begin(options));
  if (!run->recipe.has_calibrate()) {
    return absl::InvalidArgumentError("the recipe holds no calibrate");
  }
  HS_ASSIGN_OR_RETURN(const auto model, LoadBase(*run));
  if (options.measured) return ChooseAmongMeasured(*run, *model);
  HS_ASSIGN_OR_RETURN(Measurer measurer,
                      HeldOutMeasurer(run->recipe, *run->runtime, model,
                                      ServedDirection(model->spec()), options.data));
  Rivals rivals(*model, measurer);
  HS_ASSIGN_OR_RETURN(Calibration calibration,
                      CalibrateModel(run->recipe, *run->runtime, *model, rivals));
  HS_ASSIGN_OR_RETURN(const std::vector<MeasuredCorrection> corrections,
                      MeasureCorrections(*run, model, options.data, rivals));
  std::vector<PlanCalibration> shown = calibration.plans;
  std::vector<std::pair<std::string, GenerationFiles>> renewed;  // by folder
  for (const MeasuredCorrection& correction : corrections) {
    shown.insert(shown.end(), correction.plans.begin(), correction.plans.end());
    if (!options.renew) continue;
    HS_ASSIGN_OR_RETURN(GenerationFiles files,
                        Renewed(*run, BoundsOf(*run, model, options.data), correction));
    renewed.emplace_back(correction.folder, std::move(files));
  }
  calibration.default_plan = ChooseDefault(*run, *model, calibration.plans, corrections);
  HS_RETURN_IF_ERROR(WriteUnlessStopped([&]() -> absl::Status {
    for (const auto& [folder, files] : renewed) {
      HS_RETURN_IF_ERROR(WriteGeneration(folder, files).status());
    }
    return WriteFileAtomically(run->model_folder + "/calibration.json",
                               PrintCalibration(calibration));
  }));
  absl::PrintF("%s%s: %d held-out rows, reference %s, default plan %s, in %s on %s\n",
               CalibrationTable(model->spec().kind, shown), run->recipe.name(), calibration.rows,
               calibration.reference, PrintPlan(DefaultPlanOf(calibration)), run->TimeText(),
               calibration.device);
  if (options.picture.empty()) return absl::OkStatus();
  return DrawCalibration(run->recipe.name(), shown, options.picture);
}

absl::Status Report(const CommandOptions& options) {
  if (options.html.empty()) return absl::InvalidArgumentError("report takes --html=FILE");
  HS_ASSIGN_OR_RETURN(const auto run, Begin(options));
  HS_ASSIGN_OR_RETURN(
      const ReportContent content,
      GatherReport(run->recipe, *run->runtime, run->model_folder, options.data, run->field_code));
  const std::string page = ReportPage(content);
  HS_RETURN_IF_ERROR(WriteUnlessStopped([&]() -> absl::Status {
    HS_RETURN_IF_ERROR(WriteFileAtomically(options.html, page));
    if (options.picture.empty()) return absl::OkStatus();
    return WriteFileAtomically(options.picture, FrontPicture(content));
  }));
  absl::PrintF("%s\n", options.html);
  return absl::OkStatus();
}

absl::Status RunPaperExperiment(const CommandOptions& options) {
  if (options.picture.empty()) return absl::InvalidArgumentError("experiment takes --picture=FILE");
  HS_ASSIGN_OR_RETURN(const auto run, Begin(options));
  HS_ASSIGN_OR_RETURN(
      const Experiment experiment,
      RunExperiment(run->recipe, *run->runtime, run->model_folder, options.data, run->field_code));
  HS_RETURN_IF_ERROR(WriteUnlessStopped(
      [&] { return WriteFileAtomically(options.picture, ExperimentPicture(experiment)); }));
  absl::PrintF("%s", ExperimentTable(experiment));
  return absl::OkStatus();
}

absl::Status Judge(const CommandOptions& options) {
  HS_ASSIGN_OR_RETURN(const auto run, Begin(options));
  HS_ASSIGN_OR_RETURN(const auto model, Model::Load(run->model_folder, run->field_code));
  HS_RETURN_IF_ERROR(CheckHeldOut(run->recipe, model->spec(), options.data));
  HS_ASSIGN_OR_RETURN(const std::string quality,
                      Quality(run->recipe, *run->runtime, model, options.data));
  absl::PrintF("%s: %s\n", run->recipe.name(), quality);
  if (!run->recipe.data().has_density()) return absl::OkStatus();
  HS_ASSIGN_OR_RETURN(const Judgement judgement, JudgeFlow(run->recipe, *run->runtime, model));
  absl::PrintF("%s\n", JudgementText(judgement));
  return absl::OkStatus();
}

}  // namespace hyperserve
