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
constexpr int64_t kPointsBytesMax = int64_t{4} << 30;

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

// The finite numbers of a file of points, [rows, input shape].
absl::StatusOr<HostTensor> PointsIn(const std::string& path, const InputSpec& input) {
  HS_ASSIGN_OR_RETURN(RowsFile file, ReadRows(path, ""));
  const std::string name = file.name;
  HS_ASSIGN_OR_RETURN(HostTensor rows, FitRows(std::move(file), input.shape, 0));
  if (!input.unit_range) rows = ConvertedTo(rows.view(), Dtype::kF32);
  return AsInputs(std::move(rows), input, name);
}

// What stands beside them in the file under this name, [rows, shape].
absl::StatusOr<HostTensor> BesidePoints(const std::string& path, const char* name, Shape shape,
                                        int64_t rows) {
  HS_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kPointsBytesMax));
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Parse(std::move(bytes));
  if (!file.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": rows with a ", name, " are a safetensors file with the tensors x and ", name));
  }
  const absl::StatusOr<TensorView> view = file->Find(name);
  if (!view.ok()) return Annotate(view.status(), path);
  shape.insert(shape.begin(), rows);
  if (view->shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", name, " is ", ShapeText(view->shape),
                                                   ", wanted is ", ShapeText(shape)));
  }
  return AsInputs(ConvertedTo(*view, Dtype::kF32), {}, absl::StrCat(path, ": ", name));
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
  files_ = Sets{.training = set(HostTensor::CopyOf(RowsOf(images, 0, fitted))),
                .validation = set(HostTensor::CopyOf(RowsOf(images, fitted, validation))),
                .held_out = set(std::move(test.images))};
  return absl::OkStatus();
}

absl::Status InputSource::TakePoints(const Recipe& recipe, const ModelSpec& spec,
                                     const std::string& path) {
  HS_ASSIGN_OR_RETURN(HostTensor points, PointsIn(path, spec.input));
  HostTensor conditions, answers;
  if (!condition_.empty()) {
    HS_ASSIGN_OR_RETURN(conditions, BesidePoints(path, "condition", condition_, points.shape[0]));
  }
  if (recipe.data().has_pairs()) {
    HS_ASSIGN_OR_RETURN(const Shape answer, AnswerShape(spec));
    HS_ASSIGN_OR_RETURN(answers, BesidePoints(path, "y", answer, points.shape[0]));
  }
  const training::Points& parts = recipe.data().has_states()  ? recipe.data().states()
                                  : recipe.data().has_pairs() ? recipe.data().pairs()
                                                              : recipe.data().points();
  const int64_t count = points.shape[0], held_out = parts.held_out_rows(),
                fitted = count - held_out - parts.validation_rows();
  if (fitted < 1) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", count, " rows; validation_rows ",
                                                   parts.validation_rows(), " and held_out_rows ",
                                                   held_out, " leave nothing to fit on"));
  }
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  RandomStream stream(seed_, RandomPurpose::kData);
  for (int64_t i = count - 1; i > 0; --i) std::swap(order[i], order[stream.Below(i + 1)]);
  const std::span<const int64_t> places = order;
  const SolveInputs all{.entry = spec.kind == ModelKind::kFlow ? Entry::kState : Entry::kInput,
                        .rows = std::move(points),
                        .condition = std::move(conditions),
                        .answer = std::move(answers)};
  files_ = Sets{.training = AtPlaces(all, places.subspan(held_out, fitted)),
                .validation = AtPlaces(all, places.last(parts.validation_rows())),
                .held_out = AtPlaces(all, places.first(held_out))};
  if (from_noise_) {  // to fit on, each batch draws its own
    files_->validation.rows = Noise(kValidationSet, 0, parts.validation_rows());
    files_->held_out.rows = Noise(kHeldOutSet, 0, held_out);
  }
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

absl::StatusOr<InputSource> InputSource::Make(const Recipe& recipe, const ModelSpec& spec,
                                              Direction direction, const std::string& data) {
  InputSource source;
  source.seed_ = static_cast<uint64_t>(recipe.seed());
  source.shape_ = spec.input.shape;
  source.condition_ = spec.condition;
  source.from_noise_ = direction == Direction::kNoiseToData && !recipe.data().has_states();
  const training::Data& from = recipe.data();
  if (spec.kind == ModelKind::kClassifier) {
    HS_RETURN_IF_ERROR(source.TakeImages(recipe, spec, data));
  } else if (spec.kind != ModelKind::kFlow && from.has_signal()) {
    HS_RETURN_IF_ERROR(source.TakeSignal(recipe, spec));
  } else if (spec.kind != ModelKind::kFlow) {
    if (!from.has_pairs() && !from.has_states()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a ", Absl(ModelKindName(spec.kind)),
                       " takes data.pairs, data.states or, if it is a trajectory, data.signal"));
    }
    HS_RETURN_IF_ERROR(source.TakePoints(recipe, spec, data));
  } else if (source.from_noise_ && spec.condition.empty()) {
    return source;
  } else if (from.has_points() || from.has_states()) {
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
  const std::vector<double> start = signal_->At(signal_start_);
  const std::span<float> numbers = inputs.rows.as<float>();
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(start[i % start.size()] + signal_->spread() * numbers[i]);
  }
  Shape shape = shape_;
  shape.insert(shape.begin(), {rows, std::ssize(signal_depths_)});
  inputs.answer = HostTensor::Zeros(Dtype::kF32, shape);
  auto place = inputs.answer.as<float>().begin();
  for (int64_t row = 0; row < rows; ++row) {
    for (const double depth : signal_depths_) {
      for (const double value : signal_->At(depth)) *place++ = static_cast<float>(value);
    }
  }
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
  if (!files_.has_value()) return Drawn(kFitSet, index * rows, rows);
  RandomStream stream(SeedOf(seed_, index + 1), RandomPurpose::kBatches);
  std::vector<int64_t> places(rows);
  for (int64_t& place : places) place = stream.Below(files_->training.count());
  SolveInputs drawn = AtPlaces(files_->training, places);
  if (from_noise_) drawn.rows = Noise(kFitSet, index * rows, rows);
  return drawn;
}

absl::StatusOr<SolveInputs> InputSource::Validation(int64_t rows) const {
  if (!files_.has_value()) return Drawn(kValidationSet, 0, rows);
  return FirstOf(files_->validation, rows, "validation");
}

std::optional<int64_t> InputSource::validation_rows() const {
  if (!files_.has_value()) return std::nullopt;
  return files_->validation.count();
}

absl::StatusOr<SolveInputs> InputSource::HeldOut(int64_t rows) const {
  if (!files_.has_value()) return Drawn(kHeldOutSet, 0, rows);
  return FirstOf(files_->held_out, rows, "held-out");
}

absl::StatusOr<std::string> ProbeBytes(const InputSource& source, int64_t rows) {
  HS_ASSIGN_OR_RETURN(const SolveInputs inputs, source.Validation(rows));
  std::map<std::string, TensorView, std::less<>> tensors = {{"x", inputs.rows.view()}};
  if (!inputs.condition.shape.empty()) tensors["condition"] = inputs.condition.view();
  return SerializeSafetensors(tensors);
}

}  // namespace hyperserve
