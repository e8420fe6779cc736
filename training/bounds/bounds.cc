#include "training/bounds/bounds.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_faults.h"
#include "core/engine/device_runtime.h"
#include "core/engine/plan_error.h"
#include "core/engine/readable/tensor_space.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/net/net.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/error_bound.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "programs/stop.h"
#include "programs/time_after.h"
#include "training/bounds/fit_distance.h"
#include "training/data/dataset.h"
#include "training/fit/parameters.h"
#include "training/fit/trajectory.h"
#include "training/measure/measure.h"
#include "training/optimise/tensor_bytes.h"

namespace hyperserve {
namespace {

constexpr int64_t kFlowFitRows = 4096, kImageFitRows = 768;  // of FitDistance
constexpr int64_t kBoundRowsMax = 16384;
constexpr double kDistanceSeconds = 4;  // about what FitDistance takes beside its solves
// Rows that choose checkpoints in our recipes for tables, which may not be the recipe at hand.
constexpr int64_t kFlowCheckRows = 2048, kImageCheckRows = 1024;

absl::StatusOr<std::shared_ptr<const Hypersolver>> SolverOf(const GenerationFiles& files,
                                                            const Model& model) {
  return Hypersolver::FromBytes(files.at("hypersolver.json"), files.at("weights.safetensors"),
                                model);
}

absl::StatusOr<InputSource> SourceOf(const Recipe& recipe, const BoundOptions& options,
                                     const Hypersolver& solver) {
  if (!recipe.has_hypersolver() || !recipe.has_calibrate()) {
    return absl::InvalidArgumentError("the recipe holds no hypersolver or no calibrate");
  }
  if (!solver.spec().learned()) {
    return absl::InvalidArgumentError("only learned solvers have bounds of their rows");
  }
  return InputSource::Make(recipe, options.model->spec(), solver.spec().direction,
                           options.data_folder);
}

absl::StatusOr<DistanceRows> RowsToFit(const Recipe& recipe, const BoundOptions& options,
                                       const Hypersolver& solver) {
  const ModelSpec& model = options.model->spec();
  HS_ASSIGN_OR_RETURN(const InputSource source, SourceOf(recipe, options, solver));
  HS_ASSIGN_OR_RETURN(const AdaptivePlan truth, ParseAdaptivePlan(recipe.hypersolver().truth()));
  const int64_t rows = model.kind == ModelKind::kFlow ? kFlowFitRows : kImageFitRows;
  const SolveInputs inputs = source.Training(recipe.hypersolver().truth_rows() / rows + 1, rows);
  const TensorSpace space(
      SpaceOptions(model, solver.spec().direction,
                   options.model->weights().Get("field", options.device, at::kFloat)));
  DistanceRows fitted_on{.start = {}, .end = {}, .condition = ConditionOf(inputs, options.device)};
  HS_ASSIGN_OR_RETURN(fitted_on.start, InitialState(options.model, inputs, options.device));
  HS_ASSIGN_OR_RETURN(const auto states, TrueStates(space, truth, model.span, {model.span[1]},
                                                    fitted_on.start, fitted_on.condition));
  fitted_on.end = states.back();
  return fitted_on;
}

absl::Status FitAll(const Recipe& recipe, const BoundOptions& options, GenerationFiles& files) {
  HS_ASSIGN_OR_RETURN(const auto solver, SolverOf(files, *options.model));
  HS_ASSIGN_OR_RETURN(const DistanceRows rows, RowsToFit(recipe, options, *solver));
  HS_ASSIGN_OR_RETURN(const SafetensorsFile weights,
                      SafetensorsFile::Parse(files.at("weights.safetensors")));
  TensorMap tensors = TensorsOf(weights);
  HypersolverSpec spec = solver->spec();
  const BatchSpec solves{.model = options.model,
                         .correction = solver,
                         .method = spec.method,
                         .entry = Entry::kState,
                         .direction = spec.direction};
  for (TableSpec& table : spec.tables) {
    HS_ASSIGN_OR_RETURN(const FittedDistance fitted, FitDistance(solves, table.evaluations, rows));
    table.distance = DistanceKind(options.model->state_shape());
    for (const auto& [name, tensor] : fitted.tensors) tensors[name] = tensor;
    spec.provenance[absl::StrFormat("distance:%d", table.evaluations)] = absl::StrFormat(
        "spread of log(error / distance) %.3f, %.3f before the polish, %.3f for a constant",
        fitted.spread, fitted.spread_start, fitted.spread_constant);
  }
  files["hypersolver.json"] = PrintHypersolverSpec(spec);
  files["weights.safetensors"] = SerializeTensors(tensors);
  return absl::OkStatus();
}

// The validation rows that chose no checkpoint.
absl::StatusOr<SolveInputs> RowsToCalibrate(const Recipe& recipe, const BoundOptions& options,
                                            const InputSource& source) {
  const bool flow = options.model->spec().kind == ModelKind::kFlow;
  int64_t chosen_by =
      std::max(int64_t{recipe.hypersolver().check_rows()}, flow ? kFlowCheckRows : kImageCheckRows);
  int64_t there = kBoundRowsMax;
  if (const auto of_file = source.validation_rows()) {
    chosen_by = std::min(chosen_by, *of_file / 2);  // a small set keeps half of its rows for this
    there = std::min(there, *of_file - chosen_by);
  }
  const int64_t rows = options.rows > 0 ? std::min(options.rows, there) : there;
  HS_ASSIGN_OR_RETURN(const SolveInputs all,
                      source.Validation(chosen_by + std::max<int64_t>(rows, 1)));
  return RowsOf(all, chosen_by, all.count() - chosen_by);
}

}  // namespace

absl::StatusOr<Calibration> CalibrationIn(const GenerationFiles& files) {
  const auto found = files.find("calibration.json");
  if (found != files.end()) return ParseCalibration(found->second);
  return absl::FailedPreconditionError(
      "the generation has no calibration.json: calibrate it first");
}

absl::Status FitDistances(const Recipe& recipe, const BoundOptions& options,
                          GenerationFiles& files) {
  HS_RETURN_IF_ERROR(
      CatchDeviceFaults("fitting distances", [&] { return FitAll(recipe, options, files); }));
  files.erase(kManifestName);
  if (!files.contains("calibration.json")) return absl::OkStatus();
  HS_ASSIGN_OR_RETURN(Calibration calibration, CalibrationIn(files));
  for (PlanCalibration& plan : calibration.plans) plan.bound.reset();
  files["calibration.json"] = PrintCalibration(calibration);
  return absl::OkStatus();
}

absl::Status CalibrateBounds(const Recipe& recipe, const BoundOptions& options,
                             GenerationFiles& files) {
  HS_ASSIGN_OR_RETURN(const auto solver, SolverOf(files, *options.model));
  HS_ASSIGN_OR_RETURN(const InputSource source, SourceOf(recipe, options, *solver));
  HS_ASSIGN_OR_RETURN(const SolveInputs rows, RowsToCalibrate(recipe, options, source));
  HS_ASSIGN_OR_RETURN(Calibration calibration, CalibrationIn(files));
  HS_ASSIGN_OR_RETURN(const Plan truth, ParsePlan(recipe.hypersolver().truth()));
  Solve solve{.model = options.model,
              .correction = nullptr,
              .plan = truth,
              .direction = solver->spec().direction,
              .batch = recipe.calibrate().batch()};
  HS_ASSIGN_OR_RETURN(const Solution reference, RunSolve(*options.runtime, solve, rows));
  solve.correction = solver;
  solve.want_distance = true;
  for (PlanCalibration& plan : calibration.plans) {
    if (StopRequested()) return Stopped();
    plan.bound.reset();
    const FixedPlan* fixed = plan.plan.fixed();
    if (fixed == nullptr || fixed->method.method != Method::kLearned) continue;
    const Hypersolver::TableFacts* table = solver->table(fixed->steps);
    if (table == nullptr || !table->spec->distance || plan.plan.tier == Tier::kFast) continue;
    solve.plan = plan.plan;
    HS_ASSIGN_OR_RETURN(const Solution solution, RunSolve(*options.runtime, solve, rows));
    plan.bound = CalibrateBound(ErrorAgainst(reference, solution).rows, solution.distance);
  }
  files["calibration.json"] = PrintCalibration(calibration);
  files.erase(kManifestName);
  return absl::OkStatus();
}

double BoundSeconds(const Recipe& recipe, const HypersolverSpec& spec, const Measurer& measurer) {
  const auto truth = ParsePlan(recipe.hypersolver().truth());
  if (!truth.ok()) return kTimeUnknown;
  // Images have as many rows for the bounds as files hold, about those that are held out.
  const bool images = recipe.data().has_idx();
  const int64_t fit = images ? kImageFitRows : kFlowFitRows;
  const int64_t rows = images ? recipe.calibrate().rows() : kBoundRowsMax;
  double seconds = measurer.SolveSeconds(*truth, nullptr, fit + rows);
  for (const TableSpec& table : spec.tables) {
    const Plan evaluations = {.choice = FixedPlan{.method = {.method = Method::kEuler},
                                                  .steps = std::max(table.evaluations, 1)},
                              .tier = Tier::kExact};
    seconds += kDistanceSeconds + measurer.SolveSeconds(evaluations, nullptr, fit + rows);
  }
  return seconds;
}

}  // namespace hyperserve
