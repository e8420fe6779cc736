#include "training/fit/model_course.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/engine/readable/tensor_space.h"
#include "core/io/file.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/norms.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/data/dataset.h"
#include "training/data/image_files.h"
#include "training/data/random.h"
#include "training/fit/flow_matching.h"
#include "training/fit/loss.h"
#include "training/fit/parameters.h"
#include "training/fit/trajectory.h"

namespace hyperserve {
namespace {

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
  void Save(TensorMap& state) const {
    SaveStream(stream_, state);
    state["rows.order"] = at::tensor(order_, at::kLong);
    state["rows.next"] = at::tensor({next_}, at::kLong);
  }
  void Load(const TensorMap& state) {
    LoadStream(state, stream_);
    const at::Tensor order = state.at("rows.order").contiguous();
    std::copy_n(order.const_data_ptr<int64_t>(), order_.size(), order_.begin());
    const auto rows = static_cast<int64_t>(order_.size());
    next_ = std::clamp<int64_t>(state.at("rows.next").item<int64_t>(), 0, rows);
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

Net NetOf(const ModelTask& task, const LayerList& layers, std::string_view prefix) {
  return Net::Make(layers, prefix, task.tensors).value();  // the tensors were made for these layers
}

at::Tensor Penalties(const ModelTask& task, const Trajectory& trajectory) {
  at::Tensor sum = at::zeros({}, trajectory.end.z.options());
  if (task.fit.speed_penalty() > 0) {
    sum = sum + task.fit.speed_penalty() * SpeedPenalty(trajectory.first_slopes);
  }
  if (task.fit.bend_penalty() > 0) {
    sum = sum + task.fit.bend_penalty() * BendPenalty(trajectory.later_stages);
  }
  return sum;
}

Trajectory FollowFixed(const ModelTask& task, const TensorSpace& space, const at::Tensor& start,
                       const at::Tensor& condition) {
  const FixedPlan solver = ParseFixedPlan(task.fit.solver()).value();  // was checked
  return Follow(space, solver, task.spec.span, space.Start(start, condition));
}

// Some rows of the batch get the model's condition.none in the place of their own.
void DropConditions(const ModelTask& task, RandomStream& stream, SolveInputs& points) {
  if (task.fit.drop_condition() == 0) return;
  const std::vector<double>& none = task.spec.no_condition;
  const std::span<float> numbers = points.condition.as<float>();
  for (size_t begin = 0; begin < numbers.size(); begin += none.size()) {
    if (stream.Uniform() >= task.fit.drop_condition()) continue;
    std::transform(none.begin(), none.end(), numbers.begin() + static_cast<std::ptrdiff_t>(begin),
                   [](double number) { return static_cast<float>(number); });
  }
}

void UseStream(const std::shared_ptr<RandomStream>& stream, Course& course) {
  course.save = [stream](TensorMap& state) { SaveStream(*stream, state); };
  course.load = [stream](const TensorMap& state) { LoadStream(state, *stream); };
}

// The images of the training files and their labels, on the device.
struct ImagesThere {
  at::Tensor images, labels;
  std::string digest;
};
absl::StatusOr<ImagesThere> ImagesOf(const ModelTask& task, const Recipe& recipe,
                                     const std::string& data_folder,
                                     const std::shared_ptr<const Model>& model) {
  HS_ASSIGN_OR_RETURN(
      const LabelledImages data,
      LoadLabelled(recipe, task.spec.input, model->outputs(), ImagePart::kTraining, data_folder));
  const SolveInputs inputs{.entry = Entry::kInput, .rows = data.images};
  HS_ASSIGN_OR_RETURN(const at::Tensor images, StemInput(model, inputs, task.device));
  return ImagesThere{.images = images,
                     .labels = at::tensor(data.labels, at::kLong).to(task.device),
                     .digest = data.Digest()};
}

// Cross-entropy of shuffled batches. The images stay on the device.
absl::StatusOr<Course> ClassifierCourse(ModelTask& task, const Recipe& recipe,
                                        const std::string& data_folder,
                                        const std::shared_ptr<const Model>& model) {
  HS_ASSIGN_OR_RETURN(const ImagesThere all, ImagesOf(task, recipe, data_folder, model));
  const int64_t rows = all.labels.size(0) - ValidationRows(recipe);
  if (rows < 1) return absl::InvalidArgumentError("validation_rows leaves nothing to fit on");
  if (StartsWithBatchNorm(task.spec.stem)) {
    const at::Tensor by_channel = all.images.narrow(0, 0, rows).transpose(0, 1).flatten(1);
    task.tensors["stem.0.running_mean"].copy_(by_channel.mean(1));
    task.tensors["stem.0.running_var"].copy_(by_channel.var(1));
  }
  const TensorSpace space(
      SpaceOptions(task.spec, Direction::kForward, NetOf(task, task.spec.field, "field")));
  const Net stem = NetOf(task, task.spec.stem, "stem"), head = NetOf(task, task.spec.head, "head");
  const auto of_rows = [&task, all, space, stem, head](const at::Tensor& places) {
    const auto depth = [&](double s) {
      return at::full({places.size(0)}, s, all.images.options());
    };
    const at::Tensor start =
        stem.Apply(all.images.index_select(0, places), depth(task.spec.span[0]));
    const Trajectory trajectory = FollowFixed(task, space, start, {});
    const at::Tensor logits = head.Apply(trajectory.end.z, depth(task.spec.span[1]));
    return at::cross_entropy_loss(logits, all.labels.index_select(0, places)) +
           Penalties(task, trajectory);
  };
  const auto order = std::make_shared<EpochOrder>(recipe.seed(), rows);
  return Course{
      .data_digest = all.digest,
      .loss = [&task, order, of_rows](int) -> absl::StatusOr<at::Tensor> {
        const std::vector<int64_t> batch = order->Next(task.fit.optimiser().batch());
        return of_rows(at::tensor(batch, at::kLong).to(task.device));
      },
      .held_out_loss = [&task, rows, of_rows]() -> absl::StatusOr<at::Tensor> {
        const int64_t count = task.fit.check_rows(), batch = task.fit.optimiser().batch();
        at::Tensor sum = at::zeros({}, at::TensorOptions(at::kFloat).device(task.device));
        for (int64_t first = 0; first < count; first += batch) {
          const int64_t part = std::min(batch, count - first);
          const at::Tensor places = at::arange(rows + first, rows + first + part, at::kLong);
          sum = sum + of_rows(places.to(task.device)) * (static_cast<double>(part) / count);
        }
        return sum;
      },
      .save = [order](TensorMap& state) { order->Save(state); },
      .load = [order](const TensorMap& state) { order->Load(state); }};
}

// -log p of points of the data, solved from data to noise.
absl::StatusOr<Course> FlowCourse(ModelTask& task, const Recipe& recipe,
                                  const std::string& data_folder,
                                  const std::shared_ptr<const Model>& model) {
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, task.spec, Direction::kDataToNoise, data_folder));
  TensorSpace::Options options =
      SpaceOptions(task.spec, Direction::kDataToNoise, NetOf(task, task.spec.field, "field"));
  options.log_density = LogDensity::kDivergence;
  const TensorSpace space(std::move(options));
  const auto of_points = [&task, space, model](SolveInputs points,
                                               RandomStream& stream) -> absl::StatusOr<at::Tensor> {
    DropConditions(task, stream, points);
    HS_ASSIGN_OR_RETURN(const at::Tensor data, InitialState(model, points, task.device));
    const Trajectory trajectory = FollowFixed(task, space, data, ConditionOf(points, task.device));
    return NegativeLogLikelihood(trajectory.end.z, trajectory.end.log_density) +
           Penalties(task, trajectory);
  };
  const auto stream = std::make_shared<RandomStream>(recipe.seed(), RandomPurpose::kBatches);
  const RandomStream first = *stream;
  Course course{.data_digest = source.Digest(),
                .loss =
                    [&task, source, stream, of_points](int iteration) {
                      return of_points(source.Training(iteration, task.fit.optimiser().batch()),
                                       *stream);
                    },
                .held_out_loss = [&task, source, first, of_points]() -> absl::StatusOr<at::Tensor> {
                  RandomStream same = first;
                  HS_ASSIGN_OR_RETURN(SolveInputs points, source.Validation(task.fit.check_rows()));
                  return of_points(std::move(points), same);
                },
                .save = {},
                .load = {}};
  UseStream(stream, course);
  return course;
}

// The mean square error of the states at the depths of save_at, [rows, save_at, state...]. The
// solver's steps lie between two of these depths.
at::Tensor TrackingLoss(const ModelTask& task, const TensorSpace& space, TensorSpace::State state,
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
      penalties = Penalties(task, part);
    }
    const at::Tensor wrong = at::mse_loss(state.z, answers.select(1, static_cast<int64_t>(i)));
    losses.push_back(penalties.defined() ? wrong + penalties : wrong);
  }
  return at::stack(losses).mean();
}

// The mean square error of a regressor's outputs or of a trajectory's states.
absl::StatusOr<Course> PairCourse(ModelTask& task, const Recipe& recipe,
                                  const std::string& data_folder,
                                  const std::shared_ptr<const Model>& model) {
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, task.spec, Direction::kForward, data_folder));
  const TensorSpace space(
      SpaceOptions(task.spec, Direction::kForward, NetOf(task, task.spec.field, "field")));
  const Net stem = NetOf(task, task.spec.stem, "stem"), head = NetOf(task, task.spec.head, "head");
  const auto of_pairs = [&task, space, stem, head,
                         model](const SolveInputs& inputs) -> absl::StatusOr<at::Tensor> {
    HS_ASSIGN_OR_RETURN(const at::Tensor rows, StemInput(model, inputs, task.device));
    const at::Tensor answers = TensorFromView(inputs.answer.view()).to(task.device);
    const auto depth = [&](double s) { return at::full({rows.size(0)}, s, rows.options()); };
    const at::Tensor start = stem.Apply(rows, depth(task.spec.span[0]));
    const at::Tensor condition = ConditionOf(inputs, task.device);
    if (task.spec.kind == ModelKind::kTrajectory) {
      return TrackingLoss(task, space, space.Start(start, condition), answers);
    }
    const Trajectory trajectory = FollowFixed(task, space, start, condition);
    const at::Tensor outputs = head.Apply(trajectory.end.z, depth(task.spec.span[1]));
    return at::mse_loss(outputs, answers) + Penalties(task, trajectory);
  };
  return Course{.data_digest = source.Digest(),
                .loss =
                    [&task, source, of_pairs](int iteration) {
                      return of_pairs(source.Training(iteration, task.fit.optimiser().batch()));
                    },
                .held_out_loss = [&task, source, of_pairs]() -> absl::StatusOr<at::Tensor> {
                  HS_ASSIGN_OR_RETURN(const SolveInputs rows,
                                      source.Validation(task.fit.check_rows()));
                  return of_pairs(rows);
                },
                .save = [](TensorMap&) {},
                .load = [](const TensorMap&) {}};
}

// |f - velocity|^2 at points of straight paths between noise and points of the density. Their
// shares of the way are spread evenly over [0, 1], from a random offset.
absl::StatusOr<Course> MatchingCourse(ModelTask& task, const Recipe& recipe,
                                      const std::string& data_folder,
                                      const std::shared_ptr<const Model>& model) {
  const Direction onward = task.spec.direction;
  const Direction back =
      onward == Direction::kNoiseToData ? Direction::kDataToNoise : Direction::kNoiseToData;
  HS_ASSIGN_OR_RETURN(const auto starts, InputSource::Make(recipe, task.spec, onward, data_folder));
  HS_ASSIGN_OR_RETURN(const auto ends, InputSource::Make(recipe, task.spec, back, data_folder));
  const Net field = NetOf(task, task.spec.field, "field");
  const auto of_paths = [&task, field, model](const SolveInputs& from, SolveInputs points,
                                              RandomStream& stream) -> absl::StatusOr<at::Tensor> {
    const int64_t rows = from.count();
    HS_ASSIGN_OR_RETURN(const at::Tensor start, InitialState(model, from, at::kCPU));
    DropConditions(task, stream, points);
    HS_ASSIGN_OR_RETURN(const at::Tensor end, InitialState(model, points, at::kCPU));
    const int rounds = task.fit.flow_matching().pairing_rounds();
    const at::Tensor pairing = at::tensor(ShorterPairing(start, end, rounds, stream), at::kLong);
    const at::Tensor share = (at::arange(rows, at::kFloat) + stream.Uniform()) / rows;
    const PathPoints path =
        PointsOnPaths(start.to(task.device), end.index_select(0, pairing).to(task.device),
                      share.to(task.device), task.spec.span);
    return VelocityLoss(field.Apply(path.state, path.depth, ConditionOf(points, task.device)),
                        path.velocity);
  };
  const auto stream = std::make_shared<RandomStream>(recipe.seed(), RandomPurpose::kBatches);
  const RandomStream first = *stream;
  Course course{.data_digest = Sha256Hex(starts.Digest() + ends.Digest()),
                .loss =
                    [&task, starts, ends, stream, of_paths](int i) {
                      const int64_t batch = task.fit.optimiser().batch();
                      return of_paths(starts.Training(i, batch), ends.Training(i, batch), *stream);
                    },
                .held_out_loss = [=, &task]() -> absl::StatusOr<at::Tensor> {
                  RandomStream same = first;
                  const int64_t rows = task.fit.check_rows();
                  HS_ASSIGN_OR_RETURN(const SolveInputs from, starts.Validation(rows));
                  HS_ASSIGN_OR_RETURN(SolveInputs points, ends.Validation(rows));
                  return of_paths(from, std::move(points), same);
                },
                .save = {},
                .load = {}};
  UseStream(stream, course);
  return course;
}

}  // namespace

bool StartsWithBatchNorm(const LayerList& stem) {
  return !stem.empty() && std::holds_alternative<BatchNormLayer>(stem[0].kind);
}

absl::StatusOr<Course> CourseOf(ModelTask& task, const Recipe& recipe,
                                const std::string& data_folder,
                                const std::shared_ptr<const Model>& model) {
  if (task.spec.kind == ModelKind::kClassifier) {
    return ClassifierCourse(task, recipe, data_folder, model);
  }
  if (task.spec.kind != ModelKind::kFlow) return PairCourse(task, recipe, data_folder, model);
  return recipe.fit().has_flow_matching() ? MatchingCourse(task, recipe, data_folder, model)
                                          : FlowCourse(task, recipe, data_folder, model);
}

}  // namespace hyperserve
