#include "core/model/spec/spec.h"

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/layer.h"

namespace hyperserve {

std::string_view ModelKindName(ModelKind kind) {
  switch (kind) {
    case ModelKind::kClassifier:
      return "classifier";
    case ModelKind::kFlow:
      return "flow";
    case ModelKind::kRegressor:
      return "regressor";
    case ModelKind::kTrajectory:
      return "trajectory";
  }
  return "";
}

bool HasOutputs(ModelKind kind) {
  return kind == ModelKind::kClassifier || kind == ModelKind::kRegressor;
}

std::string_view DirectionName(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward";
    case Direction::kDataToNoise:
      return "data_to_noise";
    case Direction::kNoiseToData:
      return "noise_to_data";
  }
  return "";
}

std::string_view CorrectionInputName(CorrectionInput input) {
  switch (input) {
    case CorrectionInput::kState:
      return "state";
    case CorrectionInput::kSlope1:
      return "slope_1";
    case CorrectionInput::kSlope2:
      return "slope_2";
    case CorrectionInput::kState0:
      return "state_0";
    case CorrectionInput::kStep:
      return "step";
    case CorrectionInput::kDepth:
      return "depth";
    case CorrectionInput::kSlopes:
      return "slopes";
  }
  return "";
}

std::string_view CoefficientsName(Coefficients kind) {
  switch (kind) {
    case Coefficients::kScalar:
      return "scalar";
    case Coefficients::kChannel:
      return "channel";
    case Coefficients::kMap:
      return "map";
  }
  return "";
}

absl::Status CheckCondition(const LayerList& layers, const Shape& condition,
                            const std::string& path) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string at = absl::StrCat(path, "[", i, "].", Absl(LayerName(layers[i])));
    const int64_t features = ConditionFeatures(layers[i]);
    if (features > 0 && condition.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(at, ": the model has no condition; say condition.shape in model.json"));
    }
    if (features > 0 && condition != Shape{features}) {
      return absl::InvalidArgumentError(absl::StrCat(
          at, ": reads ", features, " features, condition.shape is ", ShapeText(condition)));
    }
    for (const InnerList& inner : InnerLists(layers[i])) {
      HS_RETURN_IF_ERROR(
          CheckCondition(inner.layers, condition, absl::StrCat(at, ".", inner.path)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> StateShape(const ModelSpec& spec) {
  return OutputShape(spec.stem, spec.input.shape);
}

absl::StatusOr<Shape> CorrectionInputShape(const HypersolverSpec& spec, const Shape& state_shape) {
  return CorrectionInputShape(spec.inputs, 0, state_shape);
}

absl::StatusOr<Shape> CorrectionInputShape(const TableSpec& table, const Shape& state_shape) {
  return CorrectionInputShape(table.inputs, table.evaluations, state_shape);
}

absl::StatusOr<Shape> CorrectionInputShape(const std::vector<CorrectionInput>& inputs, int slopes,
                                           const Shape& state_shape) {
  if (state_shape.empty()) return absl::InvalidArgumentError("a state has at least one dimension");
  Shape shape = state_shape;
  shape[0] = 0;
  for (const CorrectionInput input : inputs) {
    const bool constant = input == CorrectionInput::kStep || input == CorrectionInput::kDepth;
    const int64_t states = input == CorrectionInput::kSlopes ? slopes : 1;
    shape[0] += constant ? 1 : states * state_shape[0];
  }
  return shape;
}

std::string TablePrefix(int evaluations) { return absl::StrCat("table.", evaluations); }

std::map<std::string, Shape> ExpectedCoefficients(const TableSpec& table,
                                                  const Shape& state_shape) {
  const int64_t n = table.evaluations, channels = state_shape[0];
  const auto list = [&](int64_t length, Coefficients kind) {
    Shape shape = {length};
    const int dims = static_cast<int>(kind);  // of one coefficient
    for (int i = 0; i < dims; ++i) shape.push_back(channels);
    return shape;
  };
  const std::string prefix = TablePrefix(table.evaluations);
  std::map<std::string, Shape> expected;
  if (n > 0) {
    expected = {{prefix + ".state", list(n, table.coefficients)},
                {prefix + ".slopes", list(n * (n + 1) / 2, table.coefficients)},
                {prefix + ".offset", {n, channels}},
                {prefix + ".depth", {n}}};
  }
  if (table.distance) {
    expected[prefix + ".distance"] = list(n + 2, *table.distance);
    expected[prefix + ".distance_offset"] = {channels};
  }
  return expected;
}

Layer MapLayer(const Shape& state_shape) {
  const int64_t channels = state_shape[0];
  if (state_shape.size() == 1) return {LinearLayer{.in = channels, .out = channels, .bias = false}};
  return {Conv2dLayer{.in = channels, .out = channels, .kernel = 1, .bias = false}};
}

}  // namespace hyperserve
