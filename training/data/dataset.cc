#include "training/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/io/philox.h"
#include "core/io/rows.h"
#include "core/io/safetensors.h"
#include "training/data/random.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {
namespace {

// The sets of points share no row: they differ in the upper half of the seed.
constexpr uint64_t kFitSet = 0, kValidationSet = 1, kHeldOutSet = 2;

// Reads the first of these files of the folder that is there.
absl::StatusOr<RowsFile> ReadFirst(const std::string& folder,
                                   const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    auto file = ReadRows(folder + "/" + name, "");
    if (!absl::IsNotFound(file.status())) return file;
  }
  return absl::NotFoundError(
      absl::StrCat(folder, ": none of ", absl::StrJoin(names, ", "), " is there"));
}

// The names that hold "images" or "labels" of a part.
std::vector<std::string> NamesOf(ImagePart part, const std::string& what) {
  const std::string name = absl::StrCat(part == ImagePart::kTraining ? "train-" : "t10k-", what);
  const std::string idx = name + (what == "images" ? "-idx3-ubyte" : "-idx1-ubyte");
  return {idx, idx + ".gz", name + ".npy", name + ".safetensors", name + ".csv"};
}

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

}  // namespace

absl::StatusOr<LabelledImages> LoadImages(const std::string& folder, ImagePart part,
                                          const InputSpec& input, int64_t classes) {
  HS_ASSIGN_OR_RETURN(RowsFile images, ReadFirst(folder, NamesOf(part, "images")));
  HS_ASSIGN_OR_RETURN(RowsFile labels, ReadFirst(folder, NamesOf(part, "labels")));
  const std::string name = images.name;
  LabelledImages result;
  HS_ASSIGN_OR_RETURN(HostTensor rows, FitRows(std::move(images), input.shape, 0));
  HS_ASSIGN_OR_RETURN(result.images, AsInputs(std::move(rows), input, name));
  HS_ASSIGN_OR_RETURN(result.labels, LabelsIn(std::move(labels), classes));
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
  entry_ = Entry::kInput;
  training_ = HostTensor::CopyOf(RowsOf(images, 0, fitted));
  validation_ = HostTensor::CopyOf(RowsOf(images, fitted, validation));
  held_out_ = std::move(test.images);
  return absl::OkStatus();
}

absl::Status InputSource::TakePoints(const Recipe& recipe, const std::string& path) {
  HS_ASSIGN_OR_RETURN(RowsFile file, ReadRows(path, ""));
  const std::string name = file.name;
  HS_ASSIGN_OR_RETURN(HostTensor rows, FitRows(std::move(file), shape_, 0));
  rows = ConvertedTo(rows.view(), Dtype::kF32);
  HS_ASSIGN_OR_RETURN(const HostTensor points, AsInputs(std::move(rows), {}, name));
  const training::Points& parts = recipe.data().points();
  const int64_t count = points.shape[0], held_out = parts.held_out_rows(),
                fitted = count - held_out - parts.validation_rows();
  if (fitted < 1) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", count, " rows; validation_rows ",
                                                   parts.validation_rows(), " and held_out_rows ",
                                                   held_out, " leave nothing to fit on"));
  }
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  RandomStream stream(seed_, RandomPurpose::kData);
  for (int64_t i = count - 1; i > 0; --i) std::swap(order[i], order[stream.Below(i + 1)]);
  const std::span<const int64_t> places = order;
  held_out_ = RowsAt(points.view(), places.first(held_out));
  training_ = RowsAt(points.view(), places.subspan(held_out, fitted));
  validation_ = RowsAt(points.view(), places.last(parts.validation_rows()));
  return absl::OkStatus();
}

absl::StatusOr<InputSource> InputSource::Make(const Recipe& recipe, const ModelSpec& spec,
                                              Direction direction, const std::string& data) {
  InputSource source;
  source.seed_ = static_cast<uint64_t>(recipe.seed());
  source.shape_ = spec.input.shape;
  if (spec.kind != ModelKind::kFlow) {
    HS_RETURN_IF_ERROR(source.TakeImages(recipe, spec, data));
  } else if (direction == Direction::kDataToNoise && recipe.data().has_points()) {
    HS_RETURN_IF_ERROR(source.TakePoints(recipe, data));
  } else if (direction == Direction::kDataToNoise) {
    if (spec.input.shape != Shape{2}) {
      return absl::InvalidArgumentError(
          absl::StrCat("the recipe's densities are points of the plane, the model takes ",
                       ShapeText(spec.input.shape), "; data.points takes rows of any shape"));
    }
    HS_ASSIGN_OR_RETURN(source.density_, Density::Named(recipe.data().density()));
  }
  return source;
}

SolveInputs InputSource::Drawn(uint64_t set, int64_t first, int64_t rows) const {
  const uint64_t seed = seed_ | (set << 32);
  Shape shape = shape_;
  shape.insert(shape.begin(), rows);
  SolveInputs inputs{.entry = Entry::kState, .rows = HostTensor::Zeros(Dtype::kF32, shape)};
  const std::span<float> values = inputs.rows.as<float>();
  if (density_.has_value()) {
    const std::vector<float> points = density_->Draw(seed, first, rows);
    std::copy(points.begin(), points.end(), values.begin());
    return inputs;
  }
  std::vector<double> noise(values.size());
  PhiloxNormals(seed, first, rows, static_cast<int64_t>(values.size()) / rows, noise);
  std::copy(noise.begin(), noise.end(), values.begin());
  return inputs;
}

SolveInputs InputSource::Training(int64_t index, int64_t rows) const {
  if (training_.shape.empty()) return Drawn(kFitSet, index * rows, rows);
  RandomStream stream(seed_ | (static_cast<uint64_t>(index + 1) << 32), RandomPurpose::kBatches);
  std::vector<int64_t> indices(rows);
  for (int64_t& i : indices) i = stream.Below(training_.shape[0]);
  return {.entry = entry_, .rows = RowsAt(training_.view(), indices)};
}

absl::StatusOr<SolveInputs> InputSource::FirstOf(const HostTensor& set, int64_t rows,
                                                 std::string_view what) const {
  if (rows <= set.shape[0]) {
    return SolveInputs{.entry = entry_, .rows = HostTensor::CopyOf(RowsOf(set.view(), 0, rows))};
  }
  return absl::InvalidArgumentError(
      absl::StrCat(rows, " ", Absl(what), " rows wanted, ", set.shape[0], " are there"));
}

absl::StatusOr<SolveInputs> InputSource::Validation(int64_t rows) const {
  if (training_.shape.empty()) return Drawn(kValidationSet, 0, rows);
  return FirstOf(validation_, rows, "validation");
}

absl::StatusOr<SolveInputs> InputSource::HeldOut(int64_t rows) const {
  if (training_.shape.empty()) return Drawn(kHeldOutSet, 0, rows);
  return FirstOf(held_out_, rows, "held-out");
}

absl::StatusOr<std::string> ProbeBytes(const InputSource& source, int64_t rows) {
  HS_ASSIGN_OR_RETURN(const SolveInputs inputs, source.Validation(rows));
  return SerializeSafetensors({{"x", inputs.rows.view()}});
}

}  // namespace hyperserve
