#include "training/fit/fit_hypersolver.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/device_faults.h"
#include "core/engine/readable/tensor_space.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/model/net/cost.h"
#include "core/model/net/net.h"
#include "core/model/spec/proto_json.h"
#include "core/model/spec/spec.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "programs/progress.h"
#include "programs/time_after.h"
#include "programs/time_left.h"
#include "training/data/dataset.h"
#include "training/data/random.h"
#include "training/data/recipe.pb.h"
#include "training/fit/parameters.h"
#include "training/fit/trajectory.h"
#include "training/fit/truth.h"
#include "training/measure/calibrate.h"
#include "training/measure/measure.h"
#include "training/measure/rivals.h"
#include "training/optimise/optimise.h"
#include "training/optimise/tensor_bytes.h"

namespace hyperserve {
namespace {

constexpr char kTruthBatches[] = "truth.batches";  // in the state of a fit
constexpr char kAnother[] =
    "the generation to start from is of another method, direction, inputs or net than the recipe";

Plan FixedOf(const MethodChoice& method, int steps, bool hypersolved) {
  return {.choice = FixedPlan{.method = method, .steps = steps, .hypersolved = hypersolved},
          .tier = Tier::kExact};
}

absl::StatusOr<TensorMap> InitialNet(const Recipe& recipe, const HypersolverSpec& spec,
                                     const HypersolverFitOptions& options) {
  if (!options.start_from.has_value()) {
    RandomStream stream(recipe.seed(), RandomPurpose::kWeights);
    TensorMap tensors = InitialTensors(spec.net, "net", stream);
    ZeroLastLayer(spec.net, "net", tensors);
    return tensors;
  }
  HS_ASSIGN_OR_RETURN(HypersolverSpec other,
                      ParseHypersolverSpec(options.start_from->at("hypersolver.json"),
                                           options.model->state_shape()));
  // These fields give the weights their meaning and must agree; claims and provenance may differ.
  const HypersolverSpec wanted = {.method = spec.method,
                                  .direction = spec.direction,
                                  .eps = other.eps,
                                  .steps = other.steps,
                                  .inputs = spec.inputs,
                                  .net = spec.net,
                                  .base_digest = other.base_digest,
                                  .provenance = other.provenance};
  if (PrintHypersolverSpec(other) != PrintHypersolverSpec(wanted)) {
    return absl::FailedPreconditionError(kAnother);
  }
  HS_ASSIGN_OR_RETURN(const SafetensorsFile file,
                      SafetensorsFile::Parse(options.start_from->at("weights.safetensors")));
  TensorMap tensors = TensorsOf(file);
  HS_RETURN_IF_ERROR(Annotate(Net::Make(spec.net, "net", tensors).status(), kAnother));
  return tensors;
}

// One run of training.
class Fit {
 public:
  Fit(const Recipe& recipe, const HypersolverFitOptions& options, HypersolverSpec spec,
      InputSource source, Measurer validation)
      : recipe_(recipe),
        fit_(recipe.hypersolver()),
        options_(options),
        spec_(std::move(spec)),
        source_(std::move(source)),
        validation_(std::move(validation)),
        stream_(recipe.seed(), RandomPurpose::kBatches) {}

  absl::StatusOr<Optimised> Run(TensorMap initial);

 private:
  TensorSpace Space(std::optional<Net> correction) const;
  void ExpectWork();
  absl::Status SolveTruth();
  absl::StatusOr<at::Tensor> Loss(int iteration);
  absl::StatusOr<double> ErrorToBase();
  void Save(TensorMap& state) const;
  void Load(const TensorMap& state);

  const Recipe& recipe_;
  const training::HypersolverFit& fit_;
  const HypersolverFitOptions& options_;
  const HypersolverSpec spec_;
  const InputSource source_;
  Measurer validation_;
  RandomStream stream_;
  TensorMap tensors_;
  std::optional<TensorSpace> corrected_;
  int64_t truth_batches_ = 0;        // so far
  std::optional<TruthBatch> truth_;  // the last of them; nullopt: not solved yet
  TimeLeft time_left_;
  size_t step_kind_ = 0, truth_kind_ = 0, check_kind_ = 0;
  std::map<int, double> base_errors_;  // of the candidates, on the validation rows
};

TensorSpace Fit::Space(std::optional<Net> correction) const {
  TensorSpace::Options space =
      SpaceOptions(options_.model->spec(), spec_.direction,
                   options_.model->weights().Get("field", options_.device, at::kFloat));
  space.correction = std::move(correction);
  space.correction_inputs = spec_.inputs;
  return TensorSpace(std::move(space));
}

absl::Status Fit::SolveTruth() {
  const SolveInputs inputs = source_.Training(truth_batches_ - 1, fit_.truth_rows());
  HS_ASSIGN_OR_RETURN(const at::Tensor start,
                      InitialState(options_.model, inputs, options_.device));
  const at::Tensor condition = ConditionOf(inputs, options_.device);
  HS_ASSIGN_OR_RETURN(const AdaptivePlan plan, ParseAdaptivePlan(fit_.truth()));
  const std::array<double, 2>& span = options_.model->spec().span;
  const std::vector<double> depths = Depths({fit_.steps().begin(), fit_.steps().end()}, span);
  const TensorSpace classical = Space(std::nullopt);
  HS_ASSIGN_OR_RETURN(std::vector<at::Tensor> states,
                      TrueStates(classical, plan, span, depths, start, condition));
  truth_.emplace(classical, TableauFor(spec_.method), span, depths, std::move(states), condition);
  if (fit_.trajectory_share() < 1) {
    for (const int steps : fit_.steps()) truth_->PrepareResiduals(steps);
  }
  return absl::OkStatus();
}

// Phase 1 keeps one batch of solutions; phase 2 replaces it every swap_every iterations.
absl::StatusOr<at::Tensor> Fit::Loss(int iteration) {
  const int swapping = iteration - fit_.pretrain_iterations();
  if (iteration == 0 || (swapping >= 0 && swapping % fit_.swap_every() == 0)) {
    ++truth_batches_;
    truth_.reset();
  }
  if (!truth_.has_value()) {
    TimeAfter rest;
    rest.Set([this] { return time_left_.Seconds(); });
    HS_RETURN_IF_ERROR(time_left_.Timed(truth_kind_, [this] { return SolveTruth(); }));
  }
  const int steps = fit_.steps(static_cast<int>(stream_.Below(fit_.steps_size())));
  const int64_t rows = fit_.optimiser().batch();
  const double share = fit_.trajectory_share();
  at::Tensor loss = at::zeros({}, at::TensorOptions(at::kFloat).device(options_.device));
  if (share < 1) {
    loss = loss + (1 - share) * truth_->ResidualLoss(*corrected_, steps, rows, stream_);
  }
  if (share > 0) {
    loss = loss + share * truth_->TrajectoryLoss(*corrected_, steps, rows, stream_);
  }
  return loss;
}

void Fit::Save(TensorMap& state) const {
  SaveStream(stream_, state);
  state[kTruthBatches] = at::tensor({truth_batches_}, at::kLong);
}

void Fit::Load(const TensorMap& state) {
  LoadStream(state, stream_);
  truth_batches_ = state.at(kTruthBatches).item<int64_t>();
  truth_.reset();
}

// The mean over the candidates of the correction's error in units of its base method's, on the
// validation rows, as it would be served.
absl::StatusOr<double> Fit::ErrorToBase() {
  HS_ASSIGN_OR_RETURN(const auto candidate,
                      Hypersolver::FromBytes(PrintHypersolverSpec(spec_),
                                             SerializeTensors(tensors_), *options_.model));
  double score = 0;
  for (const auto& [steps, base_error] : base_errors_) {
    HS_ASSIGN_OR_RETURN(const double error,
                        validation_.MeanError(FixedOf(spec_.method, steps, true), candidate));
    score += error / base_error / base_errors_.size();
  }
  return score;
}

// Steps, new true solutions and checks cost differently, and the first phase has none of the second
// kind. Each kind is done once before the first progress is told, so their guesses hardly matter.
void Fit::ExpectWork() {
  const int iterations = fit_.optimiser().iterations();
  const int swapping = std::max(iterations - fit_.pretrain_iterations(), 0);
  const int swaps = (swapping + fit_.swap_every() - 1) / fit_.swap_every();
  step_kind_ = time_left_.Expect(iterations, 1);
  truth_kind_ = time_left_.Expect(swaps + (fit_.pretrain_iterations() > 0 ? 1 : 0), 10);
  check_kind_ = time_left_.Expect((iterations - 1) / fit_.check_every() + 2, 1);
}

absl::StatusOr<Optimised> Fit::Run(TensorMap initial) {
  ExpectWork();
  for (const int steps : spec_.steps) {
    HS_ASSIGN_OR_RETURN(base_errors_[steps],
                        validation_.MeanError(FixedOf(spec_.method, steps, false), nullptr));
  }
  tensors_ = TrainableCopies(initial, options_.device);
  HS_ASSIGN_OR_RETURN(Net net, Net::Make(spec_.net, "net", tensors_));
  corrected_.emplace(Space(std::move(net)));
  const std::string plan = absl::StrCat("hyper_", PrintMethod(spec_.method));
  return Optimise({.what = absl::StrCat(recipe_.name(), " ", plan),
                   .optimiser = fit_.optimiser(),
                   .tensors = tensors_,
                   .loss = [this](int iteration) { return Loss(iteration); },
                   .held_out = [this] { return ErrorToBase(); },
                   .check_every = fit_.check_every(),
                   .error_name = "error / base",
                   .save = [this](TensorMap& state) { Save(state); },
                   .load = [this](const TensorMap& state) { Load(state); },
                   .checkpoints = options_.checkpoints,
                   .checkpoint = plan,
                   .time_left = &time_left_,
                   .step_kind = step_kind_,
                   .check_kind = check_kind_});
}

// The plans of every candidate K, each after that of its base method.
std::vector<Plan> CandidatePlans(const HypersolverSpec& spec) {
  std::vector<Plan> plans;
  for (const int steps : spec.steps) {
    plans.push_back(FixedOf(spec.method, steps, false));
    plans.push_back(FixedOf(spec.method, steps, true));
  }
  return plans;
}

// What MeasureAndClaim will take: of the candidates, and of their rivals.
struct MeasuringTime {
  double candidates = 0, rivals = 0;
};

absl::StatusOr<MeasuringTime> PredictMeasuring(const HypersolverFitOptions& options,
                                               const HypersolverSpec& spec, const TensorMap& net,
                                               Measurer& held_out) {
  HS_ASSIGN_OR_RETURN(
      const auto correction,
      Hypersolver::FromBytes(PrintHypersolverSpec(spec), SerializeTensors(net), *options.model));
  MeasuringTime time;
  int64_t macs = 0;
  for (const Plan& plan : CandidatePlans(spec)) {
    const auto own = plan.hypersolved() ? correction : nullptr;
    time.candidates += held_out.Seconds(plan, own);
    macs = std::max(macs, PlanMacs(*options.model, own.get(), *plan.fixed()));
  }
  time.rivals = Rivals(*options.model, held_out).Seconds(macs);
  return time;
}

// Measures every candidate K on the held-out rows and chooses the K to claim.
absl::Status MeasureAndClaim(const HypersolverFitOptions& options, Measurer& held_out,
                             const std::string& weights, FittedHypersolver& result) {
  HS_ASSIGN_OR_RETURN(
      const auto correction,
      Hypersolver::FromBytes(PrintHypersolverSpec(result.spec), weights, *options.model));
  std::vector<int> claims;
  TimeLeft time_left;
  const std::vector<Plan> plans = CandidatePlans(result.spec);
  const auto corrected = [&](const Plan& plan) {
    return plan.hypersolved() ? correction : nullptr;
  };
  for (const Plan& plan : plans) time_left.Expect(1, held_out.Seconds(plan, corrected(plan)));
  Progress progress("candidates", static_cast<int64_t>(plans.size()), "plans",
                    [&] { return time_left.Seconds(); });
  for (size_t i = 0; i < plans.size(); ++i) {
    HS_ASSIGN_OR_RETURN(const PlanCalibration measured, time_left.Timed(i, [&] {
      return held_out.Measure(plans[i], corrected(plans[i]));
    }));
    progress.Advance(1);
    if (!plans[i].hypersolved()) {
      result.base_plans.push_back(measured);
      continue;
    }
    result.calibration.plans.push_back(measured);
    if (measured.error_mean <= kClaimRatio * result.base_plans.back().error_mean) {
      claims.push_back(plans[i].fixed()->steps);
    }
  }
  std::vector<PlanCalibration> classical = result.base_plans;
  if (claims.empty()) {
    MarkWins(classical, result.calibration.plans);
    classical.insert(classical.end(), result.calibration.plans.begin(),
                     result.calibration.plans.end());
    return absl::FailedPreconditionError(
        absl::StrCat("the correction does not beat its base method at any K; nothing is written\n",
                     CalibrationTable(options.model->spec().kind, classical)));
  }
  result.spec.steps = claims;
  return absl::OkStatus();
}

}  // namespace

std::map<std::string, std::string> ProvenanceOf(const Recipe& recipe,
                                                const HypersolverFitOptions& options) {
  std::map<std::string, std::string> provenance = {
      {"trainer", "hyperserve-train"},
      {"recipe_sha256", RecipeDigest(recipe)},
      {"seed", absl::StrCat(recipe.seed())},
      {"iterations", absl::StrCat(recipe.hypersolver().optimiser().iterations())},
      {"truth", recipe.hypersolver().truth()},
      {"device", std::string(options.runtime->device())}};
  if (options.start_from.has_value()) {
    provenance["started_from_weights_sha256"] =
        Sha256Hex(options.start_from->at("weights.safetensors"));
  }
  return provenance;
}

absl::StatusOr<FittedHypersolver> FitHypersolver(const Recipe& recipe,
                                                 const HypersolverFitOptions& options) {
  if (!recipe.has_hypersolver() || !recipe.has_calibrate()) {
    return absl::InvalidArgumentError("the recipe holds no hypersolver or no calibrate");
  }
  const training::HypersolverFit& fit_recipe = recipe.hypersolver();
  const Model& model = *options.model;
  if (model.spec().field_package && fit_recipe.trajectory_share() > 0) {
    return absl::FailedPreconditionError(
        "a share of trajectories needs derivatives of f, and this model's field is code "
        "(field.pt2), which has none: set trajectory_share to 0");
  }
  FittedHypersolver result;
  HS_ASSIGN_OR_RETURN(result.spec, RecipeHypersolverSpec(recipe, model));
  HS_ASSIGN_OR_RETURN(
      const InputSource source,
      InputSource::Make(recipe, model.spec(), result.spec.direction, options.data_folder));
  if (options.checkpoints != nullptr) options.checkpoints->Identify("data", source.Digest());
  HS_ASSIGN_OR_RETURN(const SolveInputs validation_rows,
                      source.Validation(fit_recipe.check_rows()));
  HS_ASSIGN_OR_RETURN(const SolveInputs held_out_rows, source.HeldOut(recipe.calibrate().rows()));
  HS_ASSIGN_OR_RETURN(const std::string probe, ProbeBytes(source, fit_recipe.probe_rows()));
  TimeAfter after;
  HS_ASSIGN_OR_RETURN(Measurer validation, MakeMeasurer(recipe, *options.runtime, options.model,
                                                        result.spec.direction, validation_rows));
  // Before the fit, since its pace tells how long the rest will take.
  HS_ASSIGN_OR_RETURN(Measurer held_out, MakeMeasurer(recipe, *options.runtime, options.model,
                                                      result.spec.direction, held_out_rows));
  HS_ASSIGN_OR_RETURN(TensorMap initial, InitialNet(recipe, result.spec, options));
  HS_ASSIGN_OR_RETURN(const MeasuringTime time,
                      PredictMeasuring(options, result.spec, initial, held_out));
  after.Set(time.candidates + time.rivals);
  Fit fit(recipe, options, result.spec, source, std::move(validation));
  HS_ASSIGN_OR_RETURN(const Optimised fitted,
                      CatchDeviceFaults("training", [&] { return fit.Run(std::move(initial)); }));
  const std::string weights = SerializeTensors(fitted.tensors);
  after.Set(time.rivals);
  HS_RETURN_IF_ERROR(MeasureAndClaim(options, held_out, weights, result));
  after.Set(0);
  Rivals rivals(*options.model, held_out);
  HS_RETURN_IF_ERROR(MarkAgainstRivals(rivals, result.calibration.plans));
  result.remarks = {absl::StrCat("best of iteration ", fitted.best_iteration)};
  if (!fitted.Remark().empty()) result.remarks.push_back(fitted.Remark());
  result.curves = {
      {.fit = absl::StrCat("hyper_", PrintMethod(result.spec.method)), .points = fitted.curve}};
  result.spec.provenance = ProvenanceOf(recipe, options);
  result.spec.provenance["best_iteration"] = absl::StrCat(fitted.best_iteration);
  result.spec.provenance["validation_error_to_base"] = absl::StrFormat("%.4f", fitted.error);
  if (!fitted.Remark().empty()) result.spec.provenance["remark"] = fitted.Remark();
  FillCalibration(recipe, model, *options.runtime, result.calibration);
  result.files = {{"hypersolver.json", PrintHypersolverSpec(result.spec)},
                  {"weights.safetensors", weights},
                  {"calibration.json", PrintCalibration(result.calibration)},
                  {"probe.safetensors", probe}};
  return result;
}

}  // namespace hyperserve
