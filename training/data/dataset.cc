#include "training/data/dataset.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/io/idx.h"
#include "core/io/philox.h"
#include "core/io/safetensors.h"
#include "training/data/random.h"

namespace hyperserve {
namespace {

// The sets of points share no row: they differ in the upper half of the seed.
constexpr uint64_t kFitSet = 0, kValidationSet = 1, kHeldOutSet = 2;

absl::StatusOr<HostTensor> ReadEither(const std::string& folder, const std::string& name) {
  const std::string plain = folder + "/" + name;
  auto file = ReadIdx(plain);
  if (!absl::IsNotFound(file.status())) return file;
  file = ReadIdx(plain + ".gz");
  if (!absl::IsNotFound(file.status())) return file;
  return absl::NotFoundError(absl::StrCat("neither ", plain, " nor ", plain, ".gz is there"));
}

absl::StatusOr<SolveInputs> FirstImages(const HostTensor& images, int64_t rows,
                                        std::string_view what) {
  if (rows > images.shape[0]) {
    return absl::InvalidArgumentError(absl::StrCat(rows, " ", std::string(what), " images wanted, ",
                                                   images.shape[0], " are there"));
  }
  return SolveInputs{.entry = Entry::kInput,
                     .rows = HostTensor::CopyOf(RowsOf(images.view(), 0, rows))};
}

}  // namespace

absl::StatusOr<LabelledImages> LoadImages(const std::string& folder, IdxPart part,
                                          const Shape& input, int64_t classes) {
  const std::string prefix = part == IdxPart::kTraining ? "train" : "t10k";
  HS_ASSIGN_OR_RETURN(HostTensor images, ReadEither(folder, prefix + "-images-idx3-ubyte"));
  HS_ASSIGN_OR_RETURN(const HostTensor labels, ReadEither(folder, prefix + "-labels-idx1-ubyte"));
  const int64_t rows = images.shape.empty() ? 0 : images.shape[0];
  Shape wanted = input;
  wanted.insert(wanted.begin(), rows);
  if (rows == 0 || labels.shape != Shape{rows} || ElementCount(wanted) != images.elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": images ", ShapeText(images.shape), " and labels ",
                     ShapeText(labels.shape), " do not fit the model's input ", ShapeText(input)));
  }
  images.shape = wanted;
  LabelledImages result{.images = std::move(images), .labels = {}};
  for (const uint8_t label : labels.as<uint8_t>()) result.labels.push_back(label);
  const int64_t largest = *std::max_element(result.labels.begin(), result.labels.end());
  if (largest >= classes) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": label ", largest, " where the model has ", classes, " outputs"));
  }
  return result;
}

absl::StatusOr<InputSource> InputSource::Make(const Recipe& recipe, const ModelSpec& spec,
                                              Direction direction, const std::string& data_folder) {
  InputSource source;
  source.seed_ = static_cast<uint64_t>(recipe.seed());
  source.shape_ = spec.input.shape;
  if (spec.kind == ModelKind::kFlow) {
    if (direction == Direction::kDataToNoise) {
      if (spec.input.shape != Shape{2}) {
        return absl::InvalidArgumentError(
            absl::StrCat("the recipe's densities are points of the plane, the model takes ",
                         ShapeText(spec.input.shape)));
      }
      HS_ASSIGN_OR_RETURN(source.density_, Density::Named(recipe.data().density()));
    }
    return source;
  }
  HS_ASSIGN_OR_RETURN(const Shape outputs, OutputShape(spec.head, StateShape(spec).value()));
  HS_ASSIGN_OR_RETURN(const LabelledImages training,
                      LoadImages(data_folder, IdxPart::kTraining, spec.input.shape, outputs[0]));
  HS_ASSIGN_OR_RETURN(LabelledImages test,
                      LoadImages(data_folder, IdxPart::kTest, spec.input.shape, outputs[0]));
  const int64_t validation = recipe.data().idx().validation_rows();
  if (validation >= training.rows()) {
    return absl::InvalidArgumentError(absl::StrCat("validation_rows ", validation, " of ",
                                                   training.rows(), " leaves nothing to fit on"));
  }
  const TensorView images = training.images.view();
  const int64_t fitted = training.rows() - validation;
  source.training_ = HostTensor::CopyOf(RowsOf(images, 0, fitted));
  source.validation_ = HostTensor::CopyOf(RowsOf(images, fitted, validation));
  source.held_out_ = std::move(test.images);
  return source;
}

SolveInputs InputSource::Points(uint64_t set, int64_t first, int64_t rows) const {
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
  if (training_.shape.empty()) return Points(kFitSet, index * rows, rows);
  RandomStream stream(seed_ | (static_cast<uint64_t>(index + 1) << 32), RandomPurpose::kBatches);
  std::vector<int64_t> indices(rows);
  for (int64_t& i : indices) i = stream.Below(training_.shape[0]);
  return {.entry = Entry::kInput, .rows = RowsAt(training_.view(), indices)};
}

absl::StatusOr<SolveInputs> InputSource::Validation(int64_t rows) const {
  if (training_.shape.empty()) return Points(kValidationSet, 0, rows);
  return FirstImages(validation_, rows, "validation");
}

absl::StatusOr<SolveInputs> InputSource::HeldOut(int64_t rows) const {
  if (training_.shape.empty()) return Points(kHeldOutSet, 0, rows);
  return FirstImages(held_out_, rows, "held-out");
}

absl::StatusOr<std::string> ProbeBytes(const InputSource& source, int64_t rows) {
  HS_ASSIGN_OR_RETURN(const SolveInputs inputs, source.Validation(rows));
  return SerializeSafetensors({{"x", inputs.rows.view()}});
}

}  // namespace hyperserve
