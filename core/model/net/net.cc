#include "core/model/net/net.h"

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/net/activations.h"
#include "core/model/net/dense.h"
#include "core/model/net/depth.h"
#include "core/model/net/field_package.h"
#include "core/model/net/images.h"
#include "core/model/net/joins.h"
#include "core/model/net/norms.h"

namespace hyperserve {
namespace {

// What layers may read beside their own rows.
struct Surroundings {
  const Dual& depth;      // [B]
  const Dual& condition;  // [B, features]; undefined: there is none
};

Dual ApplyLayers(const std::vector<BoundLayer>& layers, Dual x, const Surroundings& around);

// Rows [B, ...] with zeros as tangents where only `other` has some.
Dual WithTangentsOf(const Dual& other, Dual rows) {
  if (rows.tangents.defined() || !other.tangents.defined()) return rows;
  std::vector<int64_t> shape(rows.value.sizes().begin(), rows.value.sizes().end());
  shape.insert(shape.begin(), other.tangents.size(0));
  rows.tangents = at::zeros(shape, rows.value.options());
  return rows;
}

// The rows of the inner layers of a kind. Where depth or condition has tangents, the other one has
// zeros, so that an inner layer which reads both passes them on.
template <class Kind>
Dual InnerRows(const Dual& x, const Surroundings& around) {
  const auto& [depth, condition] = around;
  if constexpr (DepthEntry<Kind>) {
    return WithTangentsOf(condition,
                          {depth.value.unsqueeze(-1),
                           depth.tangents.defined() ? depth.tangents.unsqueeze(-1) : at::Tensor()});
  } else if constexpr (ConditionEntry<Kind>) {
    return WithTangentsOf(depth, condition);
  } else {
    return x;
  }
}

// Calls the Forward of a kind, which takes x and, where it reads them, its tensors, the depth or
// the condition; or the Join of a nested kind. The compiler names a kind that has neither.
template <class Kind>
Dual Apply(const Kind& kind, const BoundLayer& bound, const Dual& x, const Surroundings& around) {
  const auto& [depth, condition] = around;
  const auto push = [&x](const auto& forward) {
    return Dual{forward.value, x.tangents.defined() ? forward.tangents(x.tangents) : at::Tensor()};
  };
  if constexpr (NestedEntry<Kind>) {
    return Join(kind, x, ApplyLayers(bound.inner[0], InnerRows<Kind>(x, around), around));
  } else if constexpr (BranchedEntry<Kind>) {
    std::vector<Dual> inner;
    for (const auto& branch : bound.inner) inner.push_back(ApplyLayers(branch, x, around));
    return Join(kind, inner);
  } else if constexpr (requires { Forward(kind, x.value, depth, bound); }) {
    return push(Forward(kind, x.value, depth, bound));
  } else if constexpr (DepthEntry<Kind>) {
    return push(Forward(kind, x.value, depth));
  } else if constexpr (ConditionEntry<Kind>) {
    return push(Forward(kind, x.value, condition));
  } else if constexpr (requires { Forward(kind, x.value); }) {
    return push(Forward(kind, x.value));
  } else {
    return push(Forward(kind, x.value, bound));
  }
}

Dual ApplyLayers(const std::vector<BoundLayer>& layers, Dual x, const Surroundings& around) {
  for (const BoundLayer& bound : layers) {
    x = std::visit([&](const auto& kind) { return Apply(kind, bound, x, around); },
                   bound.layer.kind);
  }
  return x;
}

at::Tensor& Slot(BoundLayer& layer, const TensorRole role) {
  switch (role) {
    case TensorRole::kWeight:
      return layer.weight;
    case TensorRole::kBias:
      return layer.bias;
    case TensorRole::kRunningMean:
      return layer.running_mean;
    case TensorRole::kInWeight:
      return layer.in_weight;
    case TensorRole::kInBias:
      return layer.in_bias;
    case TensorRole::kOutWeight:
      return layer.out_weight;
    case TensorRole::kOutBias:
      return layer.out_bias;
    case TensorRole::kRunningVar:
      break;
  }
  return layer.running_var;
}

// Precondition: CheckShapes.
std::vector<BoundLayer> Bind(const LayerList& layers, const std::string& prefix,
                             const TensorMap& tensors) {
  std::vector<BoundLayer> bound;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name = absl::StrCat(prefix, ".", i);
    BoundLayer layer{.layer = layers[i]};
    for (const InnerList& inner : InnerLists(layers[i])) {
      layer.inner.push_back(Bind(inner.layers, absl::StrCat(name, ".", inner.prefix), tensors));
    }
    for (const LayerTensor& tensor : OwnTensors(layers[i])) {
      Slot(layer, tensor.role) =
          tensors.find(absl::StrCat(name, ".", Absl(TensorRoleName(tensor.role))))->second;
    }
    bound.push_back(std::move(layer));
  }
  return bound;
}

}  // namespace

absl::Status CheckShapes(const std::map<std::string, Shape>& expected, const TensorMap& tensors) {
  for (const auto& [name, wanted] : expected) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", name, "' ", ShapeText(wanted), " is missing"));
    }
    const at::IntArrayRef shape = found->second.sizes();
    if (shape != at::IntArrayRef(wanted)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "': shape wanted ",
                                                     ShapeText(wanted), ", found ",
                                                     ShapeText({shape.begin(), shape.end()})));
    }
  }
  return absl::OkStatus();
}

Net::Net(std::vector<BoundLayer> layers, const LayerList& kinds)
    : layers_(std::make_shared<const std::vector<BoundLayer>>(std::move(layers))),
      uses_depth_(UsesDepth(kinds)),
      uses_condition_(UsesCondition(kinds)) {}

Net Net::OfPackage(std::shared_ptr<const FieldPackage> package) {
  Net net;
  net.uses_depth_ = true;
  net.uses_condition_ = package->takes_condition();
  net.package_ = std::move(package);
  return net;
}

absl::StatusOr<Net> Net::Make(const LayerList& layers, std::string_view prefix,
                              const TensorMap& tensors) {
  HS_RETURN_IF_ERROR(CheckShapes(ExpectedTensors(layers, prefix), tensors));
  return Net(Bind(layers, std::string(prefix), tensors), layers);
}

at::Tensor Net::Apply(const at::Tensor& x, const at::Tensor& depth,
                      const at::Tensor& condition) const {
  return Apply(Dual{x, {}}, {depth, {}}, {condition, {}}).value;
}

Dual Net::Apply(const Dual& x, const Dual& depth, const Dual& condition) const {
  if (package_ != nullptr) {
    TORCH_CHECK(!x.tangents.defined() && !depth.tangents.defined() && !condition.tangents.defined(),
                "field.pt2 has no derivatives");
    return {package_->Apply(x.value, depth.value, condition.value), {}};
  }
  return ApplyLayers(*layers_, x, {.depth = depth, .condition = condition});
}

}  // namespace hyperserve
