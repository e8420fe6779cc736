#include "training/fit/fit_model.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/engine/readable/tensor_space.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/norms.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/ode/tableau.h"
#include "core/plan/plan.h"
#include "training/data/dataset.h"
#include "training/data/image_files.h"
#include "training/data/random.h"
#include "training/data/recipe.pb.h"
#include "training/fit/flow_matching.h"
#include "training/fit/loss.h"
#include "training/fit/optimise.h"
#include "training/fit/parameters.h"
#include "training/fit/trajectory.h"

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

bool StartsWithBatchNorm(const LayerList& stem) {
  return !stem.empty() && std::holds_alternative<BatchNormLayer>(stem[0].kind);
}

absl::Status CheckDropped(double share, const ModelSpec& spec) {
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
      return data.has_idx();
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
  if (StartsWithBatchNorm(rest)) rest.erase(rest.begin());
  if (HoldsBatchNorm(rest) || HoldsBatchNorm(spec.field) || HoldsBatchNorm(spec.head)) {
    return absl::InvalidArgumentError("batch norm is trained as the first layer of the stem only");
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
        "a classifier learns from data.idx, a flow from data.density or data.points, a regressor "
        "from data.pairs, a trajectory from data.pairs or data.signal");
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
        "the "
        "pairs would make the noise depend on the condition");
  }
  return CheckDropped(recipe.fit().drop_condition(), spec);
}

// The rows in random order, drawn anew for each pass.
class EpochOrder {
 public:
  EpochOrder(uint64_t seed, int64_t rows) : stream_(seed, RandomPurpose::kBatches), order_(rows) {
    std::iota(order_.begin(), order_.end(), 0);
    next_ = rows;
  }
  std::vector<int64_t> Next(int64_t count) {
    std::vector<int64_t> taken;
    while (static_cast<int64_t>(taken.size()) < count) {
      if (next_ == static_cast<int64_t>(order_.size())) Shuffle();
      taken.push_back(order_[next_++]);
    }
    return taken;
  }

 private:
  void Shuffle() {
    for (size_t i = order_.size() - 1; i > 0; --i) {
      std::swap(order_[i], order_[stream_.Below(static_cast<int64_t>(i) + 1)]);
    }
    next_ = 0;
  }
  RandomStream stream_;
  std::vector<int64_t> order_;
  int64_t next_;
};

// What all kinds of training share: spec, tensors, penalties.
struct Task {
  ModelSpec spec;
  training::ModelFit fit;
  TensorMap tensors;
  at::Device device;

  Net NetOf(const LayerList& layers, std::string_view prefix) const {
    return Net::Make(layers, prefix, tensors).value();  // the tensors were made for these layers
  }
  at::Tensor Penalties(const Trajectory& trajectory) const {
    at::Tensor sum = at::zeros({}, trajectory.end.z.options());
    if (fit.speed_penalty() > 0) {
      sum = sum + fit.speed_penalty() * SpeedPenalty(trajectory.first_slopes);
    }
    if (fit.bend_penalty() > 0) {
      sum = sum + fit.bend_penalty() * BendPenalty(trajectory.later_stages);
    }
    return sum;
  }
};

Trajectory FollowFixed(const Task& task, const TensorSpace& space, const at::Tensor& start,
                       const at::Tensor& condition) {
  const FixedPlan solver = ParseFixedPlan(task.fit.solver()).value();  // was checked
  return Follow(space, solver, task.spec.span, space.Start(start, condition));
}

// Some rows of the batch get the model's condition.none in the place of their own.
void DropConditions(const Task& task, RandomStream& stream, SolveInputs& points) {
  if (task.fit.drop_condition() == 0) return;
  const std::vector<double>& none = task.spec.no_condition;
  const std::span<float> numbers = points.condition.as<float>();
  for (size_t begin = 0; begin < numbers.size(); begin += none.size()) {
    if (stream.Uniform() >= task.fit.drop_condition()) continue;
    std::transform(none.begin(), none.end(), numbers.begin() + static_cast<std::ptrdiff_t>(begin),
                   [](double number) { return static_cast<float>(number); });
  }
}

using Loss = std::function<absl::StatusOr<at::Tensor>(int)>;

// Cross-entropy of shuffled batches. The images stay on the device.
absl::StatusOr<Loss> ClassifierLoss(Task& task, const Recipe& recipe,
                                    const std::string& data_folder,
                                    const std::shared_ptr<const Model>& model) {
  HS_ASSIGN_OR_RETURN(LabelledImages data, LoadImages(data_folder, ImagePart::kTraining,
                                                      task.spec.input, model->outputs()));
  const int64_t rows = data.rows() - recipe.data().idx().validation_rows();
  if (rows < 1) return absl::InvalidArgumentError("validation_rows leaves nothing to fit on");
  const SolveInputs inputs{.entry = Entry::kInput,
                           .rows = HostTensor::CopyOf(RowsOf(data.images.view(), 0, rows))};
  HS_ASSIGN_OR_RETURN(const at::Tensor images, StemInput(model, inputs, task.device));
  data.labels.resize(rows);
  const at::Tensor labels = at::tensor(data.labels, at::kLong).to(task.device);
  if (StartsWithBatchNorm(task.spec.stem)) {
    const at::Tensor by_channel = images.transpose(0, 1).flatten(1);
    task.tensors["stem.0.running_mean"].copy_(by_channel.mean(1));
    task.tensors["stem.0.running_var"].copy_(by_channel.var(1));
  }
  auto order = std::make_shared<EpochOrder>(recipe.seed(), rows);
  const TensorSpace space(
      SpaceOptions(task.spec, Direction::kForward, task.NetOf(task.spec.field, "field")));
  const Net stem = task.NetOf(task.spec.stem, "stem"), head = task.NetOf(task.spec.head, "head");
  return [&task, images, labels, order, space, stem, head](int) -> absl::StatusOr<at::Tensor> {
    const int64_t batch = task.fit.optimiser().batch();
    const at::Tensor rows = at::tensor(order->Next(batch), at::kLong).to(task.device);
    const auto depth = [&](double s) { return at::full({batch}, s, images.options()); };
    const at::Tensor start = stem.Apply(images.index_select(0, rows), depth(task.spec.span[0]));
    const Trajectory trajectory = FollowFixed(task, space, start, {});
    const at::Tensor logits = head.Apply(trajectory.end.z, depth(task.spec.span[1]));
    return at::cross_entropy_loss(logits, labels.index_select(0, rows)) +
           task.Penalties(trajectory);
  };
}

// The mean square error of the states at the depths of save_at, [rows, save_at, state...]. The
// solver's steps lie between two of these depths.
at::Tensor TrackingLoss(const Task& task, const TensorSpace& space, TensorSpace::State state,
                        const at::Tensor& answers) {
  const FixedPlan solver = ParseFixedPlan(task.fit.solver()).value();  // was checked
  const std::vector<double>& depths = task.spec.save_at;
  std::vector<at::Tensor> losses;
  double begin = task.spec.span[0];
  for (size_t i = 0; i < depths.size(); ++i) {
    at::Tensor penalties;
    if (depths[i] > begin) {
      const Trajectory part = Follow(space, solver, {begin, depths[i]}, state);
      state = part.end;
      begin = depths[i];
      penalties = task.Penalties(part);
    }
    const at::Tensor wrong = at::mse_loss(state.z, answers.select(1, static_cast<int64_t>(i)));
    losses.push_back(penalties.defined() ? wrong + penalties : wrong);
  }
  return at::stack(losses).mean();
}

// The mean square error of a regressor's outputs or of a trajectory's states.
absl::StatusOr<Loss> PairLoss(Task& task, const Recipe& recipe, const std::string& data_folder,
                              const std::shared_ptr<const Model>& model) {
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, task.spec, Direction::kForward, data_folder));
  const TensorSpace space(
      SpaceOptions(task.spec, Direction::kForward, task.NetOf(task.spec.field, "field")));
  const Net stem = task.NetOf(task.spec.stem, "stem"), head = task.NetOf(task.spec.head, "head");
  return [&task, source, space, stem, head, model](int iteration) -> absl::StatusOr<at::Tensor> {
    const int64_t batch = task.fit.optimiser().batch();
    const SolveInputs inputs = source.Training(iteration, batch);
    HS_ASSIGN_OR_RETURN(const at::Tensor rows, StemInput(model, inputs, task.device));
    const at::Tensor answers = TensorFromView(inputs.answer.view()).to(task.device);
    const auto depth = [&](double s) { return at::full({batch}, s, rows.options()); };
    const at::Tensor start = stem.Apply(rows, depth(task.spec.span[0]));
    const at::Tensor condition = ConditionOf(inputs, task.device);
    if (task.spec.kind == ModelKind::kTrajectory) {
      return TrackingLoss(task, space, space.Start(start, condition), answers);
    }
    const Trajectory trajectory = FollowFixed(task, space, start, condition);
    const at::Tensor outputs = head.Apply(trajectory.end.z, depth(task.spec.span[1]));
    return at::mse_loss(outputs, answers) + task.Penalties(trajectory);
  };
}

// -log p of points of the data, solved from data to noise.
absl::StatusOr<Loss> FlowLoss(Task& task, const Recipe& recipe, const std::string& data_folder,
                              const std::shared_ptr<const Model>& model) {
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, task.spec, Direction::kDataToNoise, data_folder));
  TensorSpace::Options options =
      SpaceOptions(task.spec, Direction::kDataToNoise, task.NetOf(task.spec.field, "field"));
  options.log_density = LogDensity::kDivergence;
  const TensorSpace space(std::move(options));
  auto stream = std::make_shared<RandomStream>(recipe.seed(), RandomPurpose::kBatches);
  return [&task, source, space, stream, model](int iteration) -> absl::StatusOr<at::Tensor> {
    SolveInputs points = source.Training(iteration, task.fit.optimiser().batch());
    DropConditions(task, *stream, points);
    HS_ASSIGN_OR_RETURN(const at::Tensor data, InitialState(model, points, task.device));
    const Trajectory trajectory = FollowFixed(task, space, data, ConditionOf(points, task.device));
    return NegativeLogLikelihood(trajectory.end.z, trajectory.end.log_density) +
           task.Penalties(trajectory);
  };
}

// |f - velocity|^2 at points of straight paths between fresh noise and fresh points of the density.
// Their shares of the way are spread evenly over [0, 1], from a random offset.
absl::StatusOr<Loss> MatchingLoss(Task& task, const Recipe& recipe, const std::string& data_folder,
                                  const std::shared_ptr<const Model>& model) {
  const Direction onward = task.spec.direction;
  const Direction back =
      onward == Direction::kNoiseToData ? Direction::kDataToNoise : Direction::kNoiseToData;
  HS_ASSIGN_OR_RETURN(const auto starts, InputSource::Make(recipe, task.spec, onward, data_folder));
  HS_ASSIGN_OR_RETURN(const auto ends, InputSource::Make(recipe, task.spec, back, data_folder));
  auto stream = std::make_shared<RandomStream>(recipe.seed(), RandomPurpose::kBatches);
  const Net field = task.NetOf(task.spec.field, "field");
  return [&task, starts, ends, stream, field, model](int i) -> absl::StatusOr<at::Tensor> {
    const int64_t batch = task.fit.optimiser().batch();
    HS_ASSIGN_OR_RETURN(const at::Tensor start,
                        InitialState(model, starts.Training(i, batch), at::kCPU));
    SolveInputs points = ends.Training(i, batch);
    DropConditions(task, *stream, points);
    HS_ASSIGN_OR_RETURN(const at::Tensor end, InitialState(model, points, at::kCPU));
    const int rounds = task.fit.flow_matching().pairing_rounds();
    const at::Tensor pairing = at::tensor(ShorterPairing(start, end, rounds, *stream), at::kLong);
    const at::Tensor share = (at::arange(batch, at::kFloat) + stream->Uniform()) / batch;
    const PathPoints path =
        PointsOnPaths(start.to(task.device), end.index_select(0, pairing).to(task.device),
                      share.to(task.device), task.spec.span);
    return VelocityLoss(field.Apply(path.state, path.depth, ConditionOf(points, task.device)),
                        path.velocity);
  };
}

absl::StatusOr<Loss> LossOf(Task& task, const Recipe& recipe, const std::string& data_folder,
                            const std::shared_ptr<const Model>& model) {
  if (task.spec.kind == ModelKind::kClassifier) {
    return ClassifierLoss(task, recipe, data_folder, model);
  }
  if (task.spec.kind != ModelKind::kFlow) return PairLoss(task, recipe, data_folder, model);
  return recipe.fit().has_flow_matching() ? MatchingLoss(task, recipe, data_folder, model)
                                          : FlowLoss(task, recipe, data_folder, model);
}

}  // namespace

absl::StatusOr<ModelFiles> FitModel(const Recipe& recipe, const std::string& data_folder,
                                    at::Device device) {
  if (!recipe.has_model() || !recipe.has_fit()) {
    return absl::InvalidArgumentError("the recipe holds no model or no fit: nothing to train");
  }
  HS_ASSIGN_OR_RETURN(const ModelSpec spec, RecipeModelSpec(recipe));
  HS_RETURN_IF_ERROR(CheckTrainable(recipe, spec));
  return CatchExceptions("training", [&]() -> absl::StatusOr<ModelFiles> {
    RandomStream stream(recipe.seed(), RandomPurpose::kWeights);
    TensorMap initial = InitialTensors(spec.stem, "stem", stream);
    initial.merge(InitialTensors(spec.field, "field", stream));
    initial.merge(InitialTensors(spec.head, "head", stream));
    const std::string model_json = PrintModelSpec(spec);
    HS_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> start,
                        Model::FromBytes(model_json, SerializeTensors(initial)));
    Task task{.spec = spec,
              .fit = recipe.fit(),
              .tensors = TrainableCopies(initial, device),
              .device = device};
    HS_ASSIGN_OR_RETURN(const Loss loss, LossOf(task, recipe, data_folder, start));
    HS_RETURN_IF_ERROR(Optimise({.what = recipe.name(),
                                 .optimiser = recipe.fit().optimiser(),
                                 .parameters = Fitted(task.tensors),
                                 .loss = loss}));
    return ModelFiles{.model_json = model_json, .weights = SerializeTensors(task.tensors)};
  });
}

}  // namespace hyperserve
