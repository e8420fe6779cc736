// model.json and hypersolver.json as plain data (docs/MODEL_FORMAT.md), with their parsers and
// printers. The layers determine every expected tensor (core/model/layers/layer.h). All functions
// are pure and may be called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
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

// What the answer of a model is: labels, samples and densities, numbers (outputs of its head), or
// the states at the depths of save_at.
enum class ModelKind { kClassifier, kFlow, kRegressor, kTrajectory };
// The direction of a solve. kForward: the field's own direction. The model.json of a flow names one
// of the other two as the direction of its field; a solve against it integrates -f(s0 + s1 - s, z)
// on the same span.
enum class Direction { kForward, kDataToNoise, kNoiseToData };
std::string_view ModelKindName(ModelKind kind);       // "classifier", "flow", ...
bool HasOutputs(ModelKind kind);                      // whether it has a head
std::string_view DirectionName(Direction direction);  // "forward", "data_to_noise", "noise_to_data"

// What the rows of a request must be, and how they are preprocessed. Preprocessing is not part of
// f.
struct InputSpec {
  Shape shape;              // of one row, without the batch: [1, 28, 28], [2]
  bool unit_range = false;  // values lie within [0, 1]
  // For each channel, or empty. The engine computes (x - mean) / deviation.
  std::vector<double> mean, deviation;
};

// A field that is code instead of layers: field.pt2 in the model's folder.
struct FieldPackageSpec {
  int64_t macs = 0;  // multiply-accumulates of one evaluation on one row, as the model declares
};

// What becomes of the code that a model may bring as its field (field.pt2). It runs with all rights
// of the process, so only a person who trusts its maker can say kRun.
enum class FieldCode {
  kRefused,  // the model is not loaded
  kSealed,   // it counts in the digest and is never run: the model can be read, but not solved
  kRun,
};

// ParseModelSpec makes it; whoever fills one by hand keeps the same rules, since no other function
// checks them.
struct ModelSpec {
  ModelKind kind = ModelKind::kClassifier;
  Direction direction = Direction::kForward;  // flows: kDataToNoise or kNoiseToData
  std::array<double, 2> span = {0.0, 1.0};    // [s0, s1], s0 < s1
  InputSpec input;
  Shape condition;                        // [features] of a row's condition; empty: there is none
  std::vector<double> no_condition = {};  // the condition that stands for none; empty: none does
  LayerList stem, field, head;            // flows have neither stem nor head, trajectories no head
  std::optional<FieldPackageSpec> field_package = {};  // set exactly where `field` is empty
  std::vector<std::string> labels;                     // one for each output, or none
  std::vector<double> save_at = {};  // trajectories: rising depths within the span, at least one
};

// What g may read: the state, the slopes of the first two stages, z(s0), eps and s.
enum class CorrectionInput { kState, kSlope1, kSlope2, kState0, kStep, kDepth, kSlopes };
// "state", "slope_1", "slope_2", "state_0", "step", "depth", "slopes". The last one is all slopes
// of a table, and is an input of readouts only.
std::string_view CorrectionInputName(CorrectionInput input);

// What a coefficient of a table multiplies with: one number, one for each channel, or a square
// matrix over the channels (features of a flow).
enum class Coefficients { kScalar, kChannel, kMap };
std::string_view CoefficientsName(Coefficients kind);  // "scalar", "channel", "map"

// The table of a learned solver for n evaluations of f (core/ode/solver_table.h), and its readout
// g.
struct TableSpec {
  int evaluations = 0;  // n; 0: g alone
  Coefficients coefficients = Coefficients::kScalar;
  std::vector<CorrectionInput> inputs;  // of g: kState is x_n, kState0 is x_0, kSlopes all n slopes
  LayerList net;                        // g; empty: none
  std::optional<Coefficients> distance = std::nullopt;  // of the distance readout; nullopt: none
};

// ParseHypersolverSpec makes it.
struct HypersolverSpec {
  MethodChoice method;
  Direction direction = Direction::kForward;
  std::array<double, 2> eps = {0.0, 1.0};  // the step sizes of its training: [least, largest]
  // The K that it claims to win at; the gate tests these. Of a learned solver: the n of its tables.
  std::vector<int> steps;
  std::vector<CorrectionInput> inputs;  // of g, concatenated in this order
  LayerList net;                        // g
  std::string base_digest;              // of the model it was trained for; see repository.h
  std::map<std::string, std::string> provenance;  // how it was made; for people
  // Method learned only. Such a spec has no eps, inputs and net.
  std::array<double, 2> span = {0.0, 0.0};  // [s0, s1] that the tables hold for
  std::vector<TableSpec> tables;            // by n, ascending

  bool learned() const { return method.method == Method::kLearned; }
};

// Parse protobuf JSON of hyperserve.v1.ModelSpec and HypersolverSpec. kInvalidArgument names the
// field, the value and the limit, or the layer and the shape that do not fit: the field must map
// the state's shape to itself, and so on.
absl::StatusOr<ModelSpec> ParseModelSpec(std::string_view json);
// `state_shape` is that of the model: g must map its inputs to this shape.
absl::StatusOr<HypersolverSpec> ParseHypersolverSpec(std::string_view json,
                                                     const Shape& state_shape);
// Indented JSON that parses back to the same spec.
std::string PrintModelSpec(const ModelSpec& spec);
std::string PrintHypersolverSpec(const HypersolverSpec& spec);

// kInvalidArgument names a layer, also an inner one, that reads another condition than one of this
// shape; `path` is where the layers stand.
absl::Status CheckCondition(const LayerList& layers, const Shape& condition,
                            const std::string& path);

// The shape of z: that of the input after the stem. Fails as OutputShape does.
absl::StatusOr<Shape> StateShape(const ModelSpec& spec);
// The shape of the concatenated inputs of g. kInvalidArgument for a state without dimensions.
absl::StatusOr<Shape> CorrectionInputShape(const HypersolverSpec& spec, const Shape& state_shape);
absl::StatusOr<Shape> CorrectionInputShape(const TableSpec& table, const Shape& state_shape);
// The same for any list of inputs, with this many slopes in kSlopes.
absl::StatusOr<Shape> CorrectionInputShape(const std::vector<CorrectionInput>& inputs, int slopes,
                                           const Shape& state_shape);

// The prefix of the tensors of a table ("table.4"), and the coefficients among them:
// "table.4.state" [n, ...], ".slopes" [n (n + 1) / 2, ...] (rows i, columns j <= i), ".offset" [n,
// channels] and ".depth" [n]. None of these where n = 0. With a distance readout also
// "table.4.distance" [n + 2, ...] (of z(s1), x_0, k_0 .. k_{n-1}) and "table.4.distance_offset"
// [channels]. The dots stand for the shape of one coefficient.
std::string TablePrefix(int evaluations);
std::map<std::string, Shape> ExpectedCoefficients(const TableSpec& table, const Shape& state_shape);
// A coefficient that is a map, as a layer: for its cost, and for the padding of rows.
Layer MapLayer(const Shape& state_shape);

}  // namespace hyperserve
