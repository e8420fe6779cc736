// The table of layer kinds, and the shapes, costs and tensors of lists of layers, which follow from
// it. The headers included here hold the entries; kind.h defines an entry. The part of an entry
// that computes, with LibTorch, stands in core/model/net/ in the header of the same name. All
// functions are pure and may be called from any thread. Shapes are those of one row, without the
// batch.
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
#include "core/model/layers/depth.h"
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
template <class Kind>
requires requires(const Kind& kind) { kind.branches; }
struct CheckedKind<Kind> {
  static_assert(BranchedEntry<Kind>);
  using Type = Kind;
};
// The variant of all kinds, each checked.
template <class... Kinds>
struct TableOf {
  using Kind = std::variant<typename CheckedKind<Kinds>::Type...>;
};

using LayerTable = TableOf<
    // dense.h
    LinearLayer, Conv2dLayer, ConvTranspose2dLayer, AttentionLayer,
    // norms.h
    BatchNormLayer, GroupNormLayer, LayerNormLayer, AffineLayer,
    // activations.h
    TanhLayer, SigmoidLayer, SinLayer, ReluLayer, SiluLayer, SeluLayer, SoftplusLayer, EluLayer,
    LeakyReluLayer, GeluLayer, PreluLayer, ClampLayer,
    // images.h
    AvgPoolLayer, MaxPoolLayer, MeanPoolLayer, FlattenLayer, PixelShuffleLayer, PixelUnshuffleLayer,
    UpsampleLayer,
    // joins.h
    DepthCatLayer, ConditionCatLayer, AugmentLayer, SkipLayer, ResidualLayer, ParallelLayer,
    // depth.h
    FilmLayer, ConditionFilmLayer, SinusoidalLayer, FourierFeaturesLayer, GalerkinLinearLayer>;

// One entry with its fields. Plain data: its tensors stand elsewhere, by name.
struct Layer {
  LayerTable::Kind kind;
};

std::string_view LayerName(const Layer& layer);  // "conv2d"
RowRule RowRuleOf(const Layer& layer);           // without its inner layers
// A list of inner layers, which belong to their layer, and where they stand within it: in the names
// of tensors ("layers", "branches.0") and in messages ("layers", "branches[0].layers").
struct InnerList {
  const LayerList& layers;
  std::string prefix, path;
};
std::vector<InnerList> InnerLists(const Layer& layer);  // empty where its kind has none
// The shape of the rows that the inner layers see. Precondition: there are inner layers.
Shape InnerInput(const Layer& layer, const Shape& input);
LayerTensors OwnTensors(const Layer& layer);  // without those of inner layers
bool ReadsDepth(const Layer& layer);          // without its inner layers
bool UsesDepth(const LayerList& layers);      // any layer, also an inner one
bool UsesCondition(const LayerList& layers);  // likewise
// The numbers of a condition that the layer reads, without its inner layers; 0: it reads none.
int64_t ConditionFeatures(const Layer& layer);

// The shape of a row after these layers. kInvalidArgument names the layer and both shapes:
// "[2].conv2d: wants rows of [3, H, W], found [1, 28, 28]"; also where a row would exceed
// layer_limits::kRowElements.
absl::StatusOr<Shape> OutputShape(const LayerList& layers, const Shape& input);
// The shape after one layer; its messages begin with "conv2d: ".
absl::StatusOr<Shape> OutputShape(const Layer& layer, const Shape& input);

// Multiply-accumulates of one row through the layers, inner ones too. Products of matrices and
// convolutions count (`Macs` of each kind); elementwise work, norms and pooling do not. Fails as
// OutputShape does.
absl::StatusOr<int64_t> CountMacs(const LayerList& layers, const Shape& input);

// Every tensor that the layers need, by name and in their order: "stem.0.weight",
// "stem.1.layers.0.weight", ... `prefix` is "stem", "field", "head" or "net".
std::vector<std::pair<std::string, LayerTensor>> ListTensors(const LayerList& layers,
                                                             std::string_view prefix);
// The same tensors as a map from name to shape.
std::map<std::string, Shape> ExpectedTensors(const LayerList& layers, std::string_view prefix);

}  // namespace hyperserve
