// The parts of an entry in the table of layer kinds (layer.h), and the concept that each entry
// fulfils. Plain data without LibTorch and protobuf. All functions are pure and may be called from
// any thread. Shapes are those of one row, without the batch.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"

// Limits on the layers of a spec file. They are far above any sensible net, and low enough that no
// sum or product in core/model overflows and no hostile file causes unbounded work or memory.
namespace hyperserve::layer_limits {

inline constexpr int64_t kLayers = 256;           // layers of one list, also inner ones
inline constexpr int64_t kBranches = 64;          // of one parallel layer
inline constexpr int kNesting = 4;                // depth of layers within layers, of any kind
inline constexpr int64_t kChannels = 65536;       // features or channels, in and out
inline constexpr int64_t kKernel = 64;            // pixels; also padding, stride, shuffle factors
inline constexpr int64_t kRowElements = 1 << 24;  // numbers of one row after any layer
inline constexpr double kCoefficient = 1e6;       // an activation's slope or scale, a norm's eps
inline constexpr double kSmallest = 1e-30;        // a divisor; float32 can hold it

}  // namespace hyperserve::layer_limits

namespace hyperserve {

struct Layer;
using LayerList = std::vector<Layer>;

// The tensors that a layer may have, named as PyTorch names them.
enum class TensorRole {
  kWeight,
  kBias,
  kRunningMean,
  kRunningVar,
  kInWeight,  // of attention, as the three below
  kInBias,
  kOutWeight,
  kOutBias,
};
std::string_view TensorRoleName(TensorRole role);  // "weight"

// How a tensor's numbers begin before training: uniform within value - spread and value + spread.
struct TensorStart {
  double value = 0.0, spread = 0.0;
};

// One tensor of a kind: its name within the layer, its shape in the weights file, and where
// training begins.
struct LayerTensor {
  TensorRole role = TensorRole::kWeight;
  Shape shape;
  TensorStart start;
};
using LayerTensors = std::vector<LayerTensor>;

// How a row's bits depend on the number of rows in the batch, on the CPU. The padding follows from
// it (core/engine/readable/row_padding.h).
enum class RowRule {
  kAny,      // not at all: products, choices, sums within a row
  kVectors,  // exp and similar functions round differently in a tail that does not fill a vector
  kMatrix,   // the matrix product takes other kernels for few rows
};

// Height and width in pixels; one number stands for both.
struct HeightWidth {
  constexpr HeightWidth(int64_t both) : HeightWidth(both, both) {}  // NOLINT: a number is a size
  constexpr HeightWidth(int64_t height, int64_t width) : height(height), width(width) {}
  int64_t height, width;
};

// What a field of an entry may say, both ends included.
struct IntegerRange {
  int64_t low = 0, high = 0;
};
// Numbers that are not finite lie in no range.
struct RealRange {
  double low = 0, high = 0;
};
inline constexpr IntegerRange kChannelRange = {1, layer_limits::kChannels};
inline constexpr IntegerRange kKernelRange = {1, layer_limits::kKernel};
inline constexpr IntegerRange kPaddingRange = {0, layer_limits::kKernel};
inline constexpr RealRange kSlopeRange = {-layer_limits::kCoefficient, layer_limits::kCoefficient};
inline constexpr RealRange kSharpnessRange = {1 / layer_limits::kCoefficient,
                                              layer_limits::kCoefficient};
inline constexpr RealRange kDivisorRange = {layer_limits::kSmallest, layer_limits::kCoefficient};

// kInvalidArgument: "wants rows of <what>, found [3, 28, 28]".
absl::Status Wants(std::string_view what, const Shape& found);
// `input`; kInvalidArgument unless its first dimension is `channels`.
absl::StatusOr<Shape> SameShape(const Shape& input, int64_t channels);
// The shape that a sliding window makes of [C, H, W] with zero padding; the channels stay.
// kInvalidArgument where `input` is not [C, H, W] or the window does not fit.
absl::StatusOr<Shape> WindowShape(const Shape& input, HeightWidth kernel, HeightWidth padding,
                                  int64_t stride);
// kInvalidArgument unless `divisor` (>= 1) divides `value`: "<name> 3 does not divide <what> 4".
absl::Status CheckDivides(std::string_view name, int64_t divisor, std::string_view what,
                          int64_t value);

// weight [out, ...] and bias [out], both uniform in +-1/sqrt(fan in), which is PyTorch's default.
LayerTensors WeightAndBias(const Shape& weight, bool has_bias);  // NOLINT: mirrors the field
// A weight of ones and a bias of zeros of this shape.
LayerTensors IdentityScale(const Shape& shape);

// The common part of elementwise functions.
template <RowRule rule>
struct Elementwise {
  static constexpr RowRule kRows = rule;
  static absl::StatusOr<Shape> Output(const Shape& input) { return input; }
  static int64_t Macs(const Shape&) { return 0; }
  static LayerTensors Tensors() { return {}; }
};

// A stand-in for the visitors of an entry's fields, for the concept below.
struct AnyVisitor {
  void operator()(const auto&...) const {}
};

// What every entry says.
//   kName          in JSON and in messages
//   kRows          what it asks of the number of rows
//   Fields(visit)  visit(name, member, range...) for each field of its JSON object; a member's
//                  initial value is what an absent field means (layer_proto.cc has the overloads)
template <class Kind>
concept NamedEntry = requires(AnyVisitor visit) {
  { Kind::kName } -> std::convertible_to<std::string_view>;
  { Kind::kRows } -> std::convertible_to<RowRule>;
  Kind::Fields(visit);
};

// A kind that maps a row by itself.
//   Output(input)  shape of a row after it; kInvalidArgument says what it wants
//   Macs(output)   multiply-accumulates of one row; elementwise work is not counted
//   Tensors()      what it takes from the weights file, and how that begins in training
template <class Kind>
concept PlainEntry = NamedEntry<Kind> && requires(const Kind& kind, const Shape& shape) {
  { kind.Output(shape) } -> std::same_as<absl::StatusOr<Shape>>;
  { kind.Macs(shape) } -> std::same_as<int64_t>;
  { kind.Tensors() } -> std::same_as<LayerTensors>;
};

// A kind that joins its input with the output of its inner `layers`. It has no tensors and no cost
// beside those of its inner layers. They see its input; where it is a DepthEntry too, the depth as
// one feature; where it is a ConditionEntry, the condition.
//   Join(input, inner)  the shape of a row after the layer; `inner` is the output of `layers`
template <class Kind>
concept NestedEntry = NamedEntry<Kind> && requires(const Kind& kind, const Shape& shape) {
  { kind.layers } -> std::same_as<const LayerList&>;
  { kind.Join(shape, shape) } -> std::same_as<absl::StatusOr<Shape>>;
};

// The same with several lists of layers, `branches`, each of which sees the layer's own input.
//   Join(inner)  the shape of a row after the layer; `inner` are the outputs of the branches
template <class Kind>
concept BranchedEntry = NamedEntry<Kind> &&
    requires(const Kind& kind, const std::vector<Shape>& shapes) {
  { kind.branches } -> std::same_as<const std::vector<LayerList>&>;
  { kind.Join(shapes) } -> std::same_as<absl::StatusOr<Shape>>;
};

// A kind that also reads the depth s: `static constexpr bool kReadsDepth = true`.
template <class Kind>
concept DepthEntry = requires {
  requires Kind::kReadsDepth;
};

// A kind that also reads the condition of a row, which has as many numbers as its `features` say:
// `static constexpr bool kReadsCondition = true`. A condition is a constant: it has no tangents.
template <class Kind>
concept ConditionEntry = requires(const Kind& kind) {
  requires Kind::kReadsCondition;
  { kind.features } -> std::same_as<const int64_t&>;
};

// What the inner layers of a kind see where its own rows have the shape `input`.
template <class Kind>
requires NestedEntry<Kind> || BranchedEntry<Kind> Shape InnerInput(const Kind& kind,
                                                                   const Shape& input) {
  if constexpr (ConditionEntry<Kind>) {
    return {kind.features};
  } else {
    return DepthEntry<Kind> ? Shape{1} : input;
  }
}

}  // namespace hyperserve
