#include "core/model/layers/layer.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

// Puts `context` directly before the message.
absl::Status Within(std::string_view context, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(Absl(context), status.message()));
}

// The output shape by the entry alone, without the limit on the size of a row.
template <class Kind>
absl::StatusOr<Shape> Traced(const Kind& kind, const Shape& input) {
  absl::StatusOr<Shape> output;
  if constexpr (NestedEntry<Kind>) {
    const absl::StatusOr<Shape> inner = OutputShape(kind.layers, InnerInput(kind, input));
    if (!inner.ok()) return Within(".layers", inner.status());
    output = kind.Join(input, *inner);
  } else if constexpr (BranchedEntry<Kind>) {
    std::vector<Shape> inner;
    for (size_t i = 0; i < kind.branches.size(); ++i) {
      absl::StatusOr<Shape> shape = OutputShape(kind.branches[i], input);
      if (!shape.ok()) return Within(absl::StrCat(".branches[", i, "].layers"), shape.status());
      inner.push_back(*std::move(shape));
    }
    output = kind.Join(inner);
  } else {
    output = kind.Output(input);
  }
  if (!output.ok()) return Within(": ", output.status());
  return output;
}

// Whether `is` holds of a layer, also of an inner one.
bool AnyLayer(const LayerList& layers, const std::function<bool(const Layer&)>& is) {
  return std::any_of(layers.begin(), layers.end(), [&](const Layer& layer) {
    const std::vector<InnerList> lists = InnerLists(layer);
    return is(layer) || std::any_of(lists.begin(), lists.end(), [&](const InnerList& inner) {
             return AnyLayer(inner.layers, is);
           });
  });
}

}  // namespace

std::string_view LayerName(const Layer& layer) {
  return std::visit([](const auto& kind) -> std::string_view { return kind.kName; }, layer.kind);
}

RowRule RowRuleOf(const Layer& layer) {
  return std::visit([](const auto& kind) { return kind.kRows; }, layer.kind);
}

std::vector<InnerList> InnerLists(const Layer& layer) {
  return std::visit(
      []<class Kind>(const Kind& kind) {
        std::vector<InnerList> lists;
        if constexpr (NestedEntry<Kind>) lists.push_back({kind.layers, "layers", "layers"});
        if constexpr (BranchedEntry<Kind>) {
          for (size_t i = 0; i < kind.branches.size(); ++i) {
            lists.push_back({kind.branches[i], absl::StrCat("branches.", i),
                             absl::StrCat("branches[", i, "].layers")});
          }
        }
        return lists;
      },
      layer.kind);
}

Shape InnerInput(const Layer& layer, const Shape& input) {
  return std::visit(
      [&]<class Kind>(const Kind& kind) -> Shape {
        if constexpr (NestedEntry<Kind> || BranchedEntry<Kind>) return InnerInput(kind, input);
        return {};
      },
      layer.kind);
}

LayerTensors OwnTensors(const Layer& layer) {
  return std::visit(
      []<class Kind>(const Kind& kind) -> LayerTensors {
        if constexpr (PlainEntry<Kind>) return kind.Tensors();
        return {};
      },
      layer.kind);
}

bool ReadsDepth(const Layer& layer) {
  return std::visit([]<class Kind>(const Kind&) { return DepthEntry<Kind>; }, layer.kind);
}

int64_t ConditionFeatures(const Layer& layer) {
  return std::visit(
      []<class Kind>(const Kind& kind) -> int64_t {
        if constexpr (ConditionEntry<Kind>) return kind.features;
        return 0;
      },
      layer.kind);
}

bool UsesDepth(const LayerList& layers) { return AnyLayer(layers, ReadsDepth); }

bool UsesCondition(const LayerList& layers) {
  return AnyLayer(layers, [](const Layer& layer) { return ConditionFeatures(layer) > 0; });
}

absl::StatusOr<Shape> OutputShape(const Layer& layer, const Shape& input) {
  absl::StatusOr<Shape> output =
      input.empty() ? absl::InvalidArgumentError(": a row has at least one dimension")
                    : std::visit([&](const auto& kind) { return Traced(kind, input); }, layer.kind);
  if (!output.ok()) return Within(LayerName(layer), output.status());
  const std::optional<int64_t> elements = ElementCount(*output);
  if (!elements || *elements < 1 || *elements > layer_limits::kRowElements) {
    return absl::InvalidArgumentError(
        absl::StrCat(Absl(LayerName(layer)), ": a row of ", ShapeText(*output),
                     " has more numbers than the limit of ", layer_limits::kRowElements));
  }
  return output;
}

absl::StatusOr<Shape> OutputShape(const LayerList& layers, const Shape& input) {
  Shape shape = input;
  for (size_t i = 0; i < layers.size(); ++i) {
    absl::StatusOr<Shape> output = OutputShape(layers[i], shape);
    if (!output.ok()) return Within(absl::StrCat("[", i, "]."), output.status());
    shape = *std::move(output);
  }
  return shape;
}

absl::StatusOr<int64_t> CountMacs(const LayerList& layers, const Shape& input) {
  HS_RETURN_IF_ERROR(OutputShape(layers, input).status());
  int64_t macs = 0;
  Shape shape = input;
  for (const Layer& layer : layers) {
    const Shape output = OutputShape(layer, shape).value();
    macs += std::visit(
        [&]<class Kind>(const Kind& kind) -> int64_t {
          if constexpr (PlainEntry<Kind>) return kind.Macs(output);
          return 0;
        },
        layer.kind);
    for (const InnerList& inner : InnerLists(layer)) {
      macs += CountMacs(inner.layers, InnerInput(layer, shape)).value();
    }
    shape = output;
  }
  return macs;
}

std::vector<std::pair<std::string, LayerTensor>> ListTensors(const LayerList& layers,
                                                             std::string_view prefix) {
  std::vector<std::pair<std::string, LayerTensor>> tensors;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name = absl::StrCat(Absl(prefix), ".", i);
    for (LayerTensor& tensor : OwnTensors(layers[i])) {
      tensors.emplace_back(absl::StrCat(name, ".", Absl(TensorRoleName(tensor.role))),
                           std::move(tensor));
    }
    for (const InnerList& inner : InnerLists(layers[i])) {
      for (auto& tensor : ListTensors(inner.layers, absl::StrCat(name, ".", inner.prefix))) {
        tensors.push_back(std::move(tensor));
      }
    }
  }
  return tensors;
}

std::map<std::string, Shape> ExpectedTensors(const LayerList& layers, std::string_view prefix) {
  std::map<std::string, Shape> shapes;
  for (auto& [name, tensor] : ListTensors(layers, prefix)) shapes[name] = std::move(tensor.shape);
  return shapes;
}

}  // namespace hyperserve
