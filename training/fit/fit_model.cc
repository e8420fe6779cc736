#include "training/fit/fit_model.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/device_faults.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/norms.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/ode/tableau.h"
#include "core/plan/plan.h"
#include "programs/time_after.h"
#include "training/data/dataset.h"
#include "training/data/random.h"
#include "training/data/recipe.pb.h"
#include "training/fit/model_course.h"
#include "training/fit/parameters.h"
#include "training/optimise/optimise.h"
#include "training/optimise/tensor_bytes.h"

namespace hyperserve {
namespace {

bool HoldsBatchNorm(const LayerList& layers) {
  return std::any_of(layers.begin(), layers.end(), [](const Layer& layer) {
    const std::vector<InnerList> lists = InnerLists(layer);
    return std::holds_alternative<BatchNormLayer>(layer.kind) ||
           std::any_of(lists.begin(), lists.end(),
                       [](const InnerList& inner) { return HoldsBatchNorm(inner.layers); });
  });
}

absl::Status CheckDropped(double share, const ModelSpec& spec) {
  if (spec.kind != ModelKind::kFlow && (share > 0 || !spec.no_condition.empty())) {
    return absl::InvalidArgumentError(
        "fit.drop_condition and model.condition.none are trained for flows only");
  }
  if (share > 0 && spec.no_condition.empty()) {
    return absl::InvalidArgumentError(
        "fit.drop_condition: the model does not say condition.none, which stands for what is "
        "dropped");
  }
  if (share == 0 && !spec.no_condition.empty()) {
    return absl::InvalidArgumentError(
        "model.condition.none wants fit.drop_condition above 0, as in 0.1: else training never "
        "shows it");
  }
  return absl::OkStatus();
}

bool LearnsFrom(ModelKind kind, const training::Data& data) {
  switch (kind) {
    case ModelKind::kClassifier:
      return data.has_idx() || data.has_points();
    case ModelKind::kFlow:
      return data.has_density() || data.has_points();
    case ModelKind::kRegressor:
      return data.has_pairs();
    case ModelKind::kTrajectory:
      return data.has_pairs() || data.has_signal();
  }
  return false;
}

absl::Status CheckTrainable(const Recipe& recipe, const ModelSpec& spec) {
  LayerList rest = spec.stem;
  if (spec.kind == ModelKind::kClassifier && StartsWithBatchNorm(rest)) rest.erase(rest.begin());
  if (HoldsBatchNorm(rest) || HoldsBatchNorm(spec.field) || HoldsBatchNorm(spec.head)) {
    return absl::InvalidArgumentError(
        "batch norm is trained as the first layer of a classifier's stem only");
  }
  if (!recipe.fit().has_flow_matching()) {
    HS_ASSIGN_OR_RETURN(const FixedPlan solver, ParseFixedPlan(recipe.fit().solver()));
    if (recipe.fit().bend_penalty() > 0 && TableauFor(solver.method).solution_stages() < 2) {
      return absl::InvalidArgumentError(
          "fit.bend_penalty compares the stages of a step: fit.solver needs two or more");
    }
  }
  if (!LearnsFrom(spec.kind, recipe.data())) {
    return absl::InvalidArgumentError(
        "a classifier learns from data.idx or labelled data.points, a flow from data.density or "
        "data.points, a regressor from data.pairs, a trajectory from data.pairs or data.signal");
  }
  if (recipe.data().has_density() && spec.input.shape != Shape{2}) {
    return absl::InvalidArgumentError(
        "the densities are two-dimensional: model.input.shape is [2]");
  }
  const bool flow = spec.kind == ModelKind::kFlow;
  if (recipe.fit().has_flow_matching() && (!flow || !UsesDepth(spec.field))) {
    return absl::InvalidArgumentError(
        "fit.flow_matching is for flows whose field knows the depth: add a depth_cat to it");
  }
  if (recipe.fit().flow_matching().pairing_rounds() > 0 && !spec.condition.empty()) {
    return absl::InvalidArgumentError(
        "fit.flow_matching.pairing_rounds: a flow with a condition takes 0, since the choice of "
        "the pairs would make the noise depend on the condition");
  }
  return CheckDropped(recipe.fit().drop_condition(), spec);
}

// Without gradients.
absl::StatusOr<double> HeldOutLoss(const Course& course) {
  const at::NoGradGuard no_grad;
  HS_ASSIGN_OR_RETURN(const at::Tensor loss, course.held_out_loss());
  return loss.item<double>();
}

absl::Status CheckValidationRows(const Recipe& recipe) {
  const training::ModelFit& fit = recipe.fit();
  const bool drawn = recipe.data().has_density() || recipe.data().has_signal();
  if (fit.check_every() == 0 || drawn) return absl::OkStatus();
  if (fit.check_rows() <= ValidationRows(recipe)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("fit.check_rows: ", fit.check_rows(), " of the ",
                                                 ValidationRows(recipe), " validation rows"));
}

// Drawn, or the weights to start from.
absl::StatusOr<TensorMap> InitialModel(const Recipe& recipe, const ModelSpec& spec,
                                       const ModelFitOptions& options) {
  RandomStream stream(recipe.seed(), RandomPurpose::kWeights);
  TensorMap initial = InitialTensors(spec.stem, "stem", stream);
  initial.merge(InitialTensors(spec.field, "field", stream));
  initial.merge(InitialTensors(spec.head, "head", stream));
  if (options.start_from.empty()) return initial;
  HS_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Parse(options.start_from));
  for (auto& [name, tensor] : initial) {
    HS_ASSIGN_OR_RETURN(const TensorView view, file.Find(name));
    const at::Tensor own = TensorFromView(view).to(at::kFloat);
    if (own.sizes() != tensor.sizes()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the model to start from is another one: its ", name, " is ", ShapeText(view.shape)));
    }
    tensor = own;
  }
  return initial;
}

}  // namespace

absl::StatusOr<ModelFiles> FitModel(const Recipe& recipe, const std::string& data_folder,
                                    at::Device device, const ModelFitOptions& options) {
  if (!recipe.has_model() || !recipe.has_fit()) {
    return absl::InvalidArgumentError("the recipe holds no model or no fit: nothing to train");
  }
  HS_ASSIGN_OR_RETURN(const ModelSpec spec, RecipeModelSpec(recipe));
  HS_RETURN_IF_ERROR(CheckTrainable(recipe, spec));
  HS_RETURN_IF_ERROR(CheckValidationRows(recipe));
  return CatchDeviceFaults("training", [&]() -> absl::StatusOr<ModelFiles> {
    HS_ASSIGN_OR_RETURN(const TensorMap initial, InitialModel(recipe, spec, options));
    const std::string model_json = PrintModelSpec(spec);
    HS_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> start,
                        Model::FromBytes(model_json, SerializeTensors(initial)));
    ModelTask task{.spec = spec,
                   .fit = recipe.fit(),
                   .tensors = TrainableCopies(initial, device),
                   .device = device};
    HS_ASSIGN_OR_RETURN(const Course course, CourseOf(task, recipe, data_folder, start));
    if (options.checkpoints != nullptr) options.checkpoints->Identify("data", course.data_digest);
    Optimisation fit{.what = recipe.name(),
                     .optimiser = recipe.fit().optimiser(),
                     .tensors = task.tensors,
                     .loss = course.loss,
                     .save = course.save,
                     .load = course.load,
                     .checkpoints = options.checkpoints,
                     .checkpoint = "model"};
    if (recipe.fit().check_every() > 0) {
      fit.held_out = [&] { return HeldOutLoss(course); };
      fit.check_every = recipe.fit().check_every();
      fit.error_name = "held-out loss";
    }
    TimeAfter after;
    // An untrained model may be one that no solver solves: then the rest is not known.
    const absl::StatusOr<double> rest =
        options.seconds_after ? options.seconds_after(start) : absl::StatusOr<double>(0.0);
    if (absl::IsCancelled(rest.status())) return rest.status();
    after.SetRough(rest.value_or(kTimeUnknown));
    HS_ASSIGN_OR_RETURN(Optimised fitted, Optimise(fit));
    ModelFiles files{.model_json = model_json,
                     .weights = SerializeTensors(fitted.tensors),
                     .remark = fitted.Remark(),
                     .curve = {.fit = recipe.name(), .points = std::move(fitted.curve)}};
    return files;
  });
}

}  // namespace hyperserve
