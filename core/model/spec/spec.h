// What model.json and hypersolver.json say, as plain data (docs/MODEL_FORMAT.md). The layers derive
// every expected tensor (core/model/layers/layer.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {

inline constexpr int64_t kModelJsonBytesMax = 1 << 20;  // of model.json or hypersolver.json

enum class ModelKind { kClassifier, kFlow };
// Which way a solve runs. kForward: the field's own direction (classifiers, Solve). A flow's
// model.json says which of the other two its field runs; solving against it integrates -f(s0 + s1 -
// s, z) on the same span.
enum class Direction { kForward, kDataToNoise, kNoiseToData };
std::string_view ModelKindName(ModelKind kind);       // "classifier", "flow"
std::string_view DirectionName(Direction direction);  // "forward", "data_to_noise", "noise_to_data"

struct InputSpec {
  Shape shape;              // of one row, without the batch: [1, 28, 28], [2]
  bool unit_range = false;  // values lie within [0, 1]
  std::vector<double> mean,
      deviation;  // per channel; empty: none. Applied by the server: (x - mean) / deviation
};

struct ModelSpec {
  ModelKind kind = ModelKind::kClassifier;
  Direction direction = Direction::kForward;  // flows: kDataToNoise or kNoiseToData
  std::array<double, 2> span = {0.0, 1.0};
  InputSpec input;
  LayerList stem, field, head;  // flows have neither stem nor head
  std::vector<std::string> labels;
};

enum class CorrectionInput { kState, kSlope1, kSlope2, kState0, kStep, kDepth };
std::string_view CorrectionInputName(
    CorrectionInput input);  // "state", "slope_1", "slope_2", "state_0", "step", "depth"

struct HypersolverSpec {
  MethodChoice method;
  Direction direction = Direction::kForward;
  std::array<double, 2> eps = {0.0, 1.0};  // the range of step sizes it was trained on, inclusive
  std::vector<int> steps;                  // the K it claims to win at; the gate tests these
  std::vector<CorrectionInput> inputs;     // concatenated in this order
  LayerList net;
  std::string base_digest;  // lower-case hex; see repository.h
  std::map<std::string, std::string> provenance;
};

// Protobuf JSON of hyperserve.v1.ModelSpec / HypersolverSpec. kInvalidArgument names the field, the
// value and the limit. Both check the shapes through all layers: stem(input) is the state, field
// maps the state to itself, and so on.
absl::StatusOr<ModelSpec> ParseModelSpec(std::string_view json);
// `state_shape` of the model it corrects: the net's input and output widths are checked against it.
absl::StatusOr<HypersolverSpec> ParseHypersolverSpec(std::string_view json,
                                                     const Shape& state_shape);
std::string PrintModelSpec(const ModelSpec& spec);  // pretty JSON, parses back to the same
std::string PrintHypersolverSpec(const HypersolverSpec& spec);

absl::StatusOr<Shape> StateShape(const ModelSpec& spec);
// Shape of the concatenated inputs of g.
absl::StatusOr<Shape> CorrectionInputShape(const HypersolverSpec& spec, const Shape& state_shape);

}  // namespace hyperserve
