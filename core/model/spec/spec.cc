#include "core/model/spec/spec.h"

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace hyperserve {

std::string_view ModelKindName(ModelKind kind) {
  return kind == ModelKind::kClassifier ? "classifier" : "flow";
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
  }
  return "";
}

absl::StatusOr<Shape> StateShape(const ModelSpec& spec) {
  return OutputShape(spec.stem, spec.input.shape);
}

absl::StatusOr<Shape> CorrectionInputShape(const HypersolverSpec& spec, const Shape& state_shape) {
  if (state_shape.empty()) return absl::InvalidArgumentError("a state has at least one dimension");
  Shape shape = state_shape;
  shape[0] = 0;
  for (const CorrectionInput input : spec.inputs) {
    const bool constant = input == CorrectionInput::kStep || input == CorrectionInput::kDepth;
    shape[0] += constant ? 1 : state_shape[0];
  }
  return shape;
}

}  // namespace hyperserve
