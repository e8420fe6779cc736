#include "training/commands.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/plan_error.h"
#include "core/io/file.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "programs/stop.h"
#include "programs/time_after.h"
#include "programs/time_left.h"
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

std::vector<Plan> PlansOf(const HypersolverSpec& spec) {
  std::vector<Plan> plans;
  for (const int steps : spec.steps) {
    plans.push_back(
        {.choice = FixedPlan{.method = spec.method, .steps = steps, .hypersolved = true}});
  }
  return plans;
}

int64_t MostMacs(const Model& model, const Hypersolver& correction) {
  int64_t most = 0;
  for (const Plan& plan : PlansOf(correction.spec())) {
    most = std::max(most, PlanMacs(model, &correction, *plan.fixed()));
  }
  return most;
}

absl::StatusOr<std::vector<PlanCalibration>> MeasureCorrection(
    const TrainingRun& run, const Model& model,
    const std::shared_ptr<const Hypersolver>& correction, Rivals& rivals) {
  TimeAfter after;
  after.Set(rivals.Seconds(MostMacs(model, *correction)));
  HS_ASSIGN_OR_RETURN(auto measured, MeasurePlans(run.recipe, PlansOf(correction->spec()),
                                                  correction, rivals.measurer()));
  after.Set(0);
  HS_RETURN_IF_ERROR(MarkAgainstRivals(rivals, measured));
  return measured;
}

// A correction of the model: its method's folder, its generation's, and its plans once they are
// measured.
struct MeasuredCorrection {
  std::string folder, generation_folder;
  std::shared_ptr<const Hypersolver> correction;
  std::vector<PlanCalibration> plans = {};

  Direction direction() const { return correction->spec().direction; }
};

// Chooses the default plan among the classical plans and those of corrections, which run in the
// direction that the default is for.
std::optional<Plan> ChooseDefault(const TrainingRun& run, const Model& model,
                                  std::vector<PlanCalibration> plans,
                                  const std::vector<MeasuredCorrection>& corrections) {
  for (const MeasuredCorrection& one : corrections) {
    if (one.direction() != ServedDirection(model.spec())) continue;
    plans.insert(plans.end(), one.plans.begin(), one.plans.end());
  }
  return DefaultAmong(run.recipe, plans);
}

// Each correction's served generation, or its newest; without plans.
absl::StatusOr<std::vector<MeasuredCorrection>> LoadCorrections(const TrainingRun& run,
                                                                const Model& model) {
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
    corrections.push_back({folder, generation_folder, *correction});
  }
  return corrections;
}

// About what MeasureCorrections will take, for progress only. What a correction brings in rivals of
// the served direction, no later one does again.
TimeLeft PredictCorrections(const TrainingRun& run, const Model& model,
                            const std::vector<MeasuredCorrection>& corrections, Rivals& served) {
  TimeLeft time_left(TimeLeft::Costs::kSeconds);
  double counted = 0;  // rivals of the served direction
  for (const MeasuredCorrection& one : corrections) {
    const Measurer& measurer = served.measurer();
    double seconds =
        PlansSeconds(run.recipe, PlansOf(one.correction->spec()), one.correction, measurer);
    const double rivals = served.Seconds(MostMacs(model, *one.correction));
    if (one.direction() != ServedDirection(model.spec())) {
      seconds += measurer.reference_seconds() + rivals;
    } else {
      seconds += std::max(rivals - counted, 0.0);
      counted = std::max(counted, rivals);
    }
    time_left.Expect(1, seconds);
  }
  return time_left;
}

// Measures them on the held-out rows, each a piece of `time_left`. `served` are the rivals of the
// served direction.
absl::Status MeasureCorrections(const TrainingRun& run, const std::shared_ptr<const Model>& model,
                                const std::string& data_folder, Rivals& served, TimeLeft& time_left,
                                std::vector<MeasuredCorrection>& corrections) {
  using Plans = absl::StatusOr<std::vector<PlanCalibration>>;
  const auto measure = [&](const MeasuredCorrection& one) -> Plans {
    if (one.direction() == ServedDirection(model->spec())) {
      return MeasureCorrection(run, *model, one.correction, served);
    }
    HS_ASSIGN_OR_RETURN(Measurer measurer, HeldOutMeasurer(run.recipe, *run.runtime, model,
                                                           one.direction(), data_folder));
    Rivals rivals(*model, measurer);
    return MeasureCorrection(run, *model, one.correction, rivals);
  };
  for (size_t i = 0; i < corrections.size(); ++i) {
    HS_ASSIGN_OR_RETURN(corrections[i].plans,
                        time_left.Timed(i, [&] { return measure(corrections[i]); }));
  }
  return absl::OkStatus();
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
  HS_ASSIGN_OR_RETURN(auto corrections, LoadCorrections(run, model));
  for (MeasuredCorrection& one : corrections) {
    HS_ASSIGN_OR_RETURN(Calibration measured, ReadCalibrationOf(model, one.generation_folder));
    one.plans = std::move(measured.plans);
  }
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

// About what Renewed will take of all of them.
double RenewalSeconds(const TrainingRun& run, const std::vector<MeasuredCorrection>& corrections,
                      const Measurer& measurer) {
  double seconds = 0;
  for (const MeasuredCorrection& one : corrections) {
    const HypersolverSpec& spec = one.correction->spec();
    if (spec.learned()) seconds += BoundSeconds(run.recipe, spec, measurer);
  }
  return seconds;
}

}  // namespace

absl::Status Calibrate(const CommandOptions& options) {
  HS_ASSIGN_OR_RETURN(const auto run, Begin(options));
  if (!run->recipe.has_calibrate()) {
    return absl::InvalidArgumentError("the recipe holds no calibrate");
  }
  HS_ASSIGN_OR_RETURN(const auto model, LoadBase(*run));
  if (options.measured) return ChooseAmongMeasured(*run, *model);
  HS_ASSIGN_OR_RETURN(auto corrections, LoadCorrections(*run, *model));
  TimeAfter after;
  HS_ASSIGN_OR_RETURN(Measurer measurer,
                      HeldOutMeasurer(run->recipe, *run->runtime, model,
                                      ServedDirection(model->spec()), options.data));
  Rivals rivals(*model, measurer);
  TimeLeft time_left = PredictCorrections(*run, *model, corrections, rivals);
  TimeAfter bounds;
  bounds.SetRough(options.renew ? RenewalSeconds(*run, corrections, measurer) : 0);
  after.Set([&] { return time_left.Seconds(); });
  HS_ASSIGN_OR_RETURN(Calibration calibration,
                      CalibrateModel(run->recipe, *run->runtime, *model, rivals));
  HS_RETURN_IF_ERROR(MeasureCorrections(*run, model, options.data, rivals, time_left, corrections));
  bounds.Set(kTimeUnknown);
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
  const TimeAfter unknown;
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
  const TimeAfter unknown;
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
  const TimeAfter unknown;
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
