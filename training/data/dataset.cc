#include "training/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/io/file.h"
#include "core/io/philox.h"
#include "core/io/rows.h"
#include "core/io/safetensors.h"
#include "training/data/image_files.h"
#include "training/data/random.h"
#include "training/data/recipe.pb.h"
#include "training/data/signal.h"

namespace hyperserve {
namespace {

constexpr uint64_t kFitSet = 0, kValidationSet = 1, kHeldOutSet = 2;
constexpr int64_t kPointNumbers = 2;  // of a density

// The sets of points share no row: they differ in the upper half of the seed.
uint64_t SeedOf(uint64_t seed, uint64_t set) { return seed | (set << 32); }

// U8 stays, other numbers become F32. kInvalidArgument: one is not finite, or not within the range
// that the model takes.
absl::StatusOr<HostTensor> AsInputs(HostTensor rows, const InputSpec& input,
                                    const std::string& name) {
  if (rows.dtype == Dtype::kU8) return rows;
  HostTensor numbers = ConvertedTo(rows.view(), Dtype::kF32);
  for (const float number : numbers.as<float>()) {
    if (std::isfinite(number) && (!input.unit_range || (number >= 0 && number <= 1))) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": holds ", number, "; ",
        input.unit_range ? "numbers within [0, 1], or bytes," : "finite numbers", " are wanted"));
  }
  return numbers;
}

absl::StatusOr<std::vector<int64_t>> LabelsIn(RowsFile file, int64_t classes) {
  const std::string name = file.name;
  HS_ASSIGN_OR_RETURN(const HostTensor rows, FitRows(std::move(file), {}, 0));
  std::vector<int64_t> labels;
  for (const double label : AsDoubles(rows.view())) {
    if (!(label >= 0 && label < static_cast<double>(classes)) || label != std::floor(label)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": label ", label, " where the model has ", classes, " outputs"));
    }
    labels.push_back(static_cast<int64_t>(label));
  }
  return labels;
}

// The rows of a file, [rows, shape of the input]; those of a flow are F32.
absl::StatusOr<HostTensor> PointsIn(const std::string& path, const InputSpec& input, bool flow) {
  HS_ASSIGN_OR_RETURN(RowsFile file, ReadRows(path, ""));
  const std::string name = file.name;
  HS_ASSIGN_OR_RETURN(HostTensor rows, FitRows(std::move(file), input.shape, 0));
  if (!flow) return AsInputs(std::move(rows), input, name);
  rows = ConvertedTo(rows.view(), Dtype::kF32);
  return AsInputs(std::move(rows), {}, name);
}

// The places of a file's rows in their order of use: held-out rows, rows to fit on, validation.
struct Places {
  std::vector<int64_t> order;
  int64_t held_out = 0, fitted = 0;

  std::span<const int64_t> OfHeldOut() const { return std::span(order).first(held_out); }
  std::span<const int64_t> OfFitted() const { return std::span(order).subspan(held_out, fitted); }
  std::span<const int64_t> OfValidation() const {
    return std::span(order).subspan(held_out + fitted);
  }
};

absl::StatusOr<Places> PlacesOf(const Recipe& recipe, int64_t count, const std::string& path) {
  const training::Points& parts = PartsOf(recipe);
  Places places{.order = std::vector<int64_t>(count),
                .held_out = parts.held_out_rows(),
                .fitted = count - parts.held_out_rows() - parts.validation_rows()};
  if (places.fitted < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", count, " rows; validation_rows ", parts.validation_rows(),
                     " and held_out_rows ", parts.held_out_rows(), " leave nothing to fit on"));
  }
  std::iota(places.order.begin(), places.order.end(), 0);
  RandomStream stream(static_cast<uint64_t>(recipe.seed()), RandomPurpose::kData);
  for (int64_t i = count - 1; i > 0; --i) {
    std::swap(places.order[i], places.order[stream.Below(i + 1)]);
  }
  return places;
}

// What stands beside them in the file under this name, [rows, shape].
absl::StatusOr<HostTensor> BesidePoints(const std::string& path, const char* name, Shape shape,
                                        int64_t rows) {
  HS_ASSIGN_OR_RETURN(const RowsFile file, ReadTensorBeside(path, name));
  shape.insert(shape.begin(), rows);
  if (file.rows.shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(file.name, " is ", ShapeText(file.rows.shape),
                                                   ", wanted is ", ShapeText(shape)));
  }
  return AsInputs(ConvertedTo(file.rows.view(), Dtype::kF32), {}, file.name);
}

// Of one row: the outputs of a regressor, or the states of a trajectory at its depths.
absl::StatusOr<Shape> AnswerShape(const ModelSpec& spec) {
  HS_ASSIGN_OR_RETURN(Shape shape, StateShape(spec));
  if (HasOutputs(spec.kind)) return OutputShape(spec.head, shape);
  shape.insert(shape.begin(), std::ssize(spec.save_at));
  return shape;
}

constexpr HostTensor SolveInputs::*kBeside[] = {&SolveInputs::condition, &SolveInputs::answer};

SolveInputs AtPlaces(const SolveInputs& all, std::span<const int64_t> places) {
  SolveInputs some{.entry = all.entry, .rows = RowsAt(all.rows.view(), places)};
  for (const auto part : kBeside) {
    if (!(all.*part).shape.empty()) some.*part = RowsAt((all.*part).view(), places);
  }
  return some;
}

std::string DigestOf(const HostTensor& rows) {
  return Sha256({reinterpret_cast<const char*>(rows.bytes.data()), rows.bytes.size()});
}

absl::StatusOr<SolveInputs> FirstOf(const SolveInputs& set, int64_t rows, std::string_view what) {
  if (rows <= set.count()) return RowsOf(set, 0, rows);
  return absl::InvalidArgumentError(
      absl::StrCat(rows, " ", Absl(what), " rows wanted, ", set.count(), " are there"));
}

}  // namespace

SolveInputs RowsOf(const SolveInputs& inputs, int64_t begin, int64_t rows) {
  SolveInputs part{.entry = inputs.entry,
                   .rows = HostTensor::CopyOf(RowsOf(inputs.rows.view(), begin, rows))};
  for (const auto beside : kBeside) {
    if ((inputs.*beside).shape.empty()) continue;
    part.*beside = HostTensor::CopyOf(RowsOf((inputs.*beside).view(), begin, rows));
  }
  return part;
}

std::string LabelledImages::Digest() const {
  const std::string_view of_labels(reinterpret_cast<const char*>(labels.data()),
                                   labels.size() * sizeof(labels[0]));
  return Sha256Hex(DigestOf(images) + Sha256(of_labels));
}

absl::StatusOr<LabelledImages> LoadImages(const std::string& folder, ImagePart part,
                                          const InputSpec& input, int64_t classes) {
  HS_ASSIGN_OR_RETURN(ImageFiles files, ReadImageFiles(folder, part));
  const std::string name = files.images.name;
  LabelledImages result;
  HS_ASSIGN_OR_RETURN(HostTensor rows, FitRows(std::move(files.images), input.shape, 0));
  HS_ASSIGN_OR_RETURN(result.images, AsInputs(std::move(rows), input, name));
  HS_ASSIGN_OR_RETURN(result.labels, LabelsIn(std::move(files.labels), classes));
  if (result.images.shape[0] == result.rows()) return result;
  return absl::InvalidArgumentError(
      absl::StrCat(folder, ": ", result.images.shape[0], " images and ", result.rows(), " labels"));
}

absl::StatusOr<LabelledImages> LoadLabelled(const Recipe& recipe, const InputSpec& input,
                                            int64_t classes, ImagePart part,
                                            const std::string& data) {
  if (!recipe.data().has_points()) return LoadImages(data, part, input, classes);
  HS_ASSIGN_OR_RETURN(const HostTensor rows, PointsIn(data, input, /*flow=*/false));
  HS_ASSIGN_OR_RETURN(RowsFile file, ReadTensorBeside(data, "y"));
  HS_ASSIGN_OR_RETURN(const std::vector<int64_t> labels, LabelsIn(std::move(file), classes));
  if (rows.shape[0] != static_cast<int64_t>(labels.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(data, ": ", rows.shape[0], " rows of x and ", labels.size(), " labels in y"));
  }
  HS_ASSIGN_OR_RETURN(const Places places, PlacesOf(recipe, rows.shape[0], data));
  const std::span<const int64_t> wanted = part == ImagePart::kTest
                                              ? places.OfHeldOut()
                                              : std::span(places.order).subspan(places.held_out);
  LabelledImages some{.images = RowsAt(rows.view(), wanted), .labels = {}};
  for (const int64_t place : wanted) some.labels.push_back(labels[place]);
  return some;
}

absl::Status InputSource::TakeImages(const Recipe& recipe, const ModelSpec& spec,
                                     const std::string& folder) {
  HS_ASSIGN_OR_RETURN(const Shape outputs, OutputShape(spec.head, StateShape(spec).value()));
  HS_ASSIGN_OR_RETURN(const LabelledImages training,
                      LoadImages(folder, ImagePart::kTraining, spec.input, outputs[0]));
  HS_ASSIGN_OR_RETURN(LabelledImages test,
                      LoadImages(folder, ImagePart::kTest, spec.input, outputs[0]));
  const int64_t validation = recipe.data().idx().validation_rows();
  if (validation >= training.rows()) {
    return absl::InvalidArgumentError(absl::StrCat("validation_rows ", validation, " of ",
                                                   training.rows(), " leaves nothing to fit on"));
  }
  const TensorView images = training.images.view();
  const int64_t fitted = training.rows() - validation;
  const auto set = [](HostTensor rows) {
    return SolveInputs{.entry = Entry::kInput, .rows = std::move(rows)};
  };
  files_ = std::make_shared<const Sets>(
      Sets{.training = set(HostTensor::CopyOf(RowsOf(images, 0, fitted))),
           .validation = set(HostTensor::CopyOf(RowsOf(images, fitted, validation))),
           .held_out = set(std::move(test.images))});
  return absl::OkStatus();
}

absl::Status InputSource::TakePoints(const Recipe& recipe, const ModelSpec& spec,
                                     const std::string& path) {
  const bool flow = entry_ == Entry::kState;
  HS_ASSIGN_OR_RETURN(const HostTensor points, PointsIn(path, spec.input, flow));
  HostTensor conditions, answers;
  if (!condition_.empty()) {
    HS_ASSIGN_OR_RETURN(conditions, BesidePoints(path, "condition", condition_, points.shape[0]));
  }
  if (recipe.data().has_pairs()) {
    HS_ASSIGN_OR_RETURN(const Shape answer, AnswerShape(spec));
    HS_ASSIGN_OR_RETURN(answers, BesidePoints(path, "y", answer, points.shape[0]));
  }
  HS_ASSIGN_OR_RETURN(const Places places, PlacesOf(recipe, points.shape[0], path));
  const SolveInputs all{.entry = entry_,
                        .rows = points,
                        .condition = std::move(conditions),
                        .answer = std::move(answers)};
  Sets sets{.training = AtPlaces(all, places.OfFitted()),
            .validation = AtPlaces(all, places.OfValidation()),
            .held_out = AtPlaces(all, places.OfHeldOut())};
  if (from_noise_) {  // to fit on, each batch draws its own
    sets.validation.rows = Noise(kValidationSet, 0, sets.validation.count());
    sets.held_out.rows = Noise(kHeldOutSet, 0, sets.held_out.count());
  }
  files_ = std::make_shared<const Sets>(std::move(sets));
  return absl::OkStatus();
}

absl::Status InputSource::TakeDensity(const std::string& name) {
  if (shape_ != Shape{2}) {
    return absl::InvalidArgumentError(
        absl::StrCat("the recipe's densities are points of the plane, the model takes ",
                     ShapeText(shape_), "; data.points takes rows of any shape"));
  }
  HS_ASSIGN_OR_RETURN(density_, Density::Named(name));
  const int64_t features = condition_.empty() ? 0 : condition_[0];
  if (density_->condition_features() == features) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the points of '", name, "' have ", density_->condition_features(),
                   " numbers as their condition, condition.shape of the model says ", features));
}

absl::Status InputSource::TakeSignal(const Recipe& recipe, const ModelSpec& spec) {
  HS_ASSIGN_OR_RETURN(signal_, Signal::Make(recipe.data().signal()));
  signal_start_ = spec.span[0];
  signal_depths_ = spec.save_at;
  const Shape components = {recipe.data().signal().components_size()};
  HS_ASSIGN_OR_RETURN(const Shape state, StateShape(spec));
  if (spec.kind == ModelKind::kTrajectory && shape_ == components && state == components) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("data.signal has ", ShapeText(components),
                   " components: it wants a trajectory whose input and state have that shape"));
}

// What a recipe may take rows from for a model of this kind.
absl::Status CheckSource(const training::Data& data, ModelKind kind) {
  if (kind == ModelKind::kFlow) {
    if (!data.has_idx() && !data.has_pairs() && !data.has_signal()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "data.idx is for classifiers, data.pairs and data.signal for regressors and trajectories; "
        "a "
        "flow takes data.density, data.points or data.states");
  }
  if (kind == ModelKind::kClassifier) {
    if (data.has_idx() || data.has_points()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "data.density and data.states are for flows; a classifier takes data.idx, or data.points "
        "with rows of its input");
  }
  if (data.has_pairs() || data.has_points() || data.has_signal()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a ", Absl(ModelKindName(kind)),
                   " takes data.pairs, data.points, or if it is a trajectory data.signal"));
}

absl::StatusOr<InputSource> InputSource::Make(const Recipe& recipe, const ModelSpec& spec,
                                              Direction direction, const std::string& data) {
  InputSource source;
  source.seed_ = static_cast<uint64_t>(recipe.seed());
  source.shape_ = spec.input.shape;
  source.condition_ = spec.condition;
  source.from_noise_ = direction == Direction::kNoiseToData && !recipe.data().has_states();
  if (spec.kind != ModelKind::kFlow) source.entry_ = Entry::kInput;
  HS_RETURN_IF_ERROR(CheckSource(recipe.data(), spec.kind));
  if (recipe.data().has_idx()) {
    HS_RETURN_IF_ERROR(source.TakeImages(recipe, spec, data));
  } else if (recipe.data().has_signal()) {
    HS_RETURN_IF_ERROR(source.TakeSignal(recipe, spec));
  } else if (source.from_noise_ && spec.condition.empty()) {
    return source;
  } else if (!recipe.data().has_density()) {
    HS_RETURN_IF_ERROR(source.TakePoints(recipe, spec, data));
  } else {
    HS_RETURN_IF_ERROR(source.TakeDensity(recipe.data().density()));
  }
  return source;
}

HostTensor InputSource::Noise(uint64_t set, int64_t first, int64_t rows) const {
  Shape shape = shape_;
  shape.insert(shape.begin(), rows);
  HostTensor result = HostTensor::Zeros(Dtype::kF32, shape);
  const std::span<float> values = result.as<float>();
  std::vector<double> noise(values.size());
  PhiloxNormals(SeedOf(seed_, set), first, rows, ElementCount(shape_).value(), noise);
  std::copy(noise.begin(), noise.end(), values.begin());
  return result;
}

// Rows off the signal by a normal error; the signal is their answer.
SolveInputs InputSource::OffSignal(uint64_t set, int64_t first, int64_t rows) const {
  SolveInputs inputs{.entry = Entry::kInput, .rows = Noise(set, first, rows)};
  signal_->Surround(signal_start_, inputs.rows.as<float>());
  Shape shape = shape_;
  shape.insert(shape.begin(), {rows, std::ssize(signal_depths_)});
  inputs.answer = HostTensor::Zeros(Dtype::kF32, shape);
  signal_->Repeat(signal_depths_, inputs.answer.as<float>());
  return inputs;
}

SolveInputs InputSource::Drawn(uint64_t set, int64_t first, int64_t rows) const {
  if (signal_.has_value()) return OffSignal(set, first, rows);
  SolveInputs inputs;
  if (from_noise_) inputs.rows = Noise(set, first, rows);
  if (!density_.has_value()) return inputs;
  const std::vector<float> drawn = density_->Draw(SeedOf(seed_, set), first, rows);
  const int64_t features = density_->condition_features(), width = kPointNumbers + features;
  const auto columns = [&](int64_t begin, int64_t count) {
    HostTensor part = HostTensor::Zeros(Dtype::kF32, {rows, count});
    const std::span<float> values = part.as<float>();
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(drawn.begin() + row * width + begin, count, values.begin() + row * count);
    }
    return part;
  };
  if (!from_noise_) inputs.rows = columns(0, kPointNumbers);
  if (features > 0) inputs.condition = columns(kPointNumbers, features);
  return inputs;
}

SolveInputs InputSource::Training(int64_t index, int64_t rows) const {
  if (files_ == nullptr) return Drawn(kFitSet, index * rows, rows);
  RandomStream stream(SeedOf(seed_, index + 1), RandomPurpose::kBatches);
  std::vector<int64_t> places(rows);
  for (int64_t& place : places) place = stream.Below(files_->training.count());
  SolveInputs drawn = AtPlaces(files_->training, places);
  if (from_noise_) drawn.rows = Noise(kFitSet, index * rows, rows);
  return drawn;
}

absl::StatusOr<SolveInputs> InputSource::Validation(int64_t rows) const {
  if (files_ == nullptr) return Drawn(kValidationSet, 0, rows);
  return FirstOf(files_->validation, rows, "validation");
}

std::optional<int64_t> InputSource::validation_rows() const {
  if (files_ == nullptr) return std::nullopt;
  return files_->validation.count();
}

std::string InputSource::Digest() const {
  std::string digests;
  if (files_ != nullptr) {
    for (const SolveInputs* set : {&files_->training, &files_->validation, &files_->held_out}) {
      digests += DigestOf(set->rows) + DigestOf(set->condition);
      if (!set->answer.shape.empty()) digests += DigestOf(set->answer);
    }
  }
  return Sha256Hex(digests);
}

absl::StatusOr<SolveInputs> InputSource::HeldOut(int64_t rows) const {
  if (files_ == nullptr) return Drawn(kHeldOutSet, 0, rows);
  return FirstOf(files_->held_out, rows, "held-out");
}

absl::StatusOr<std::string> ProbeBytes(const InputSource& source, int64_t rows) {
  HS_ASSIGN_OR_RETURN(const SolveInputs inputs, source.Validation(rows));
  std::map<std::string, TensorView, std::less<>> tensors = {{"x", inputs.rows.view()}};
  if (!inputs.condition.shape.empty()) tensors["condition"] = inputs.condition.view();
  return SerializeSafetensors(tensors);
}

}  // namespace hyperserve
