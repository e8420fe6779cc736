// The table of layer kinds, and what follows from it for lists of layers: shapes, costs, tensors.
// Each entry stands in one of the headers included here; what an entry says is in kind.h. The half
// that computes, with LibTorch, is in core/model/net/ under the same name of the header.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/norms.h"

namespace hyperserve {

// Refuses an entry that is not whole; the compiler names it and what it lacks.
template <class Kind>
struct CheckedKind {
  static_assert(PlainEntry<Kind>);
  using Type = Kind;
};
template <class Kind>
requires requires(const Kind& kind) { kind.layers; }
struct CheckedKind<Kind> {
  static_assert(NestedEntry<Kind>);
  using Type = Kind;
};
template <class... Kinds>
struct TableOf {
  using Kind = std::variant<typename CheckedKind<Kinds>::Type...>;
};

using LayerTable = TableOf<
    // dense.h
    LinearLayer, Conv2dLayer,
    // norms.h
    BatchNormLayer, GroupNormLayer, LayerNormLayer,
    // activations.h
    TanhLayer, SigmoidLayer, SinLayer, ReluLayer, SiluLayer, SeluLayer, SoftplusLayer, EluLayer,
    LeakyReluLayer, GeluLayer, PreluLayer,
    // images.h
    AvgPoolLayer, MaxPoolLayer, MeanPoolLayer, FlattenLayer, PixelShuffleLayer, PixelUnshuffleLayer,
    // joins.h
    DepthCatLayer, AugmentLayer, ResidualLayer>;

struct Layer {
  LayerTable::Kind kind;
};

std::string_view LayerName(const Layer& layer);  // "conv2d"
RowRule RowRuleOf(const Layer& layer);           // its own; inner layers have theirs
// The layers within it; null where its kind has none.
const LayerList* InnerLayers(const Layer& layer);
LayerTensors OwnTensors(const Layer& layer);  // without those of inner layers
bool ReadsDepth(const Layer& layer);          // itself; inner layers not looked at
bool UsesDepth(const LayerList& layers);      // any of them, inner layers included

// Shape of one row after these layers (no batch dimension). kInvalidArgument names the layer and
// both shapes: "[2].conv2d: wants rows of [3, H, W], found [1, 28, 28]".
absl::StatusOr<Shape> OutputShape(const LayerList& layers, const Shape& input);
// After one of them: "conv2d: ...".
absl::StatusOr<Shape> OutputShape(const Layer& layer, const Shape& input);

// Multiply-accumulates of one row through the layers (linear and conv2d; elementwise work is not
// counted). Fails as OutputShape does.
absl::StatusOr<int64_t> CountMacs(const LayerList& layers, const Shape& input);

// Every tensor that the layers need, in their order: {"stem.0.weight", ...}; prefix is "stem",
// "field", "head" or "net".
std::vector<std::pair<std::string, LayerTensor>> ListTensors(const LayerList& layers,
                                                             std::string_view prefix);
// The same as name -> shape: {"stem.0.weight": [1], ...}.
std::map<std::string, Shape> ExpectedTensors(const LayerList& layers, std::string_view prefix);

}  // namespace hyperserve
