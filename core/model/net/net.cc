#include "core/model/net/net.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/tensor.h"

namespace hyperserve {
namespace {

bool HasTangents(const Dual& x) { return x.tangents.defined(); }

// `layer` on each of the T directions, as one batch of T * B rows.
template <class LinearMap>
at::Tensor OverTangents(const at::Tensor& tangents, const LinearMap& layer) {
  const at::Tensor y = layer(tangents.flatten(0, 1));
  std::vector<int64_t> shape(y.sizes().begin(), y.sizes().end());
  shape[0] = tangents.size(1);
  shape.insert(shape.begin(), tangents.size(0));
  return y.view(shape);
}

// For a layer that is linear but for a bias: map(x, bias).
template <class Map>
Dual Affine(const Dual& x, const at::Tensor& bias, const Map& map) {
  Dual y{map(x.value, bias), {}};
  if (HasTangents(x)) {
    y.tangents =
        OverTangents(x.tangents, [&](const at::Tensor& t) { return map(t, at::Tensor()); });
  }
  return y;
}

// A tensor [C] as [C, 1, 1], to be broadcast over [..., C, H, W], or as it is over [..., C].
at::Tensor PerChannel(const at::Tensor& values, const at::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim() - 1), 1);
  shape[0] = values.numel();
  return values.view(shape);
}

// y(a) and dy/da of an elementwise function; the derivative is asked for only with tangents.
struct Derivative {
  at::Tensor value, slope;
};

// On the CPU in float32 LibTorch chooses between two libraries by the number of rows, and they
// round differently: one image alone would get other bits than among others. So the choice is ours.
at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const Conv2dLayer& conv) {
  if (!x.is_cpu() || x.scalar_type() != at::kFloat) {
    return at::conv2d(x, weight, bias, conv.stride, conv.padding);
  }
  return at::mkldnn_convolution(x.contiguous(), weight, bias, {conv.padding, conv.padding},
                                {conv.stride, conv.stride}, /*dilation=*/{1, 1}, /*groups=*/1);
}

at::Tensor Softplus(const at::Tensor& a) {
  // maximum() shares the derivative between equal arguments: 1/2 at zero, as it should be.
  return at::log1p(at::abs(a).neg_().exp()).add_(at::maximum(a, at::zeros({}, a.options())));
}

Derivative Activate(ActivationKind kind, const at::Tensor& a, const bool with_slope) {
  switch (kind) {
    case ActivationKind::kSoftplus:
      return {Softplus(a), with_slope ? at::sigmoid(a) : at::Tensor()};
    case ActivationKind::kTanh: {
      const at::Tensor y = at::tanh(a);
      return {y, with_slope ? 1 - y * y : at::Tensor()};
    }
    case ActivationKind::kRelu:
      return {at::relu(a), with_slope ? at::gt(a, 0).to(a.scalar_type()) : at::Tensor()};
    case ActivationKind::kSilu: {
      const at::Tensor gate = at::sigmoid(a);
      return {a * gate, with_slope ? gate * (1 + a * (1 - gate)) : at::Tensor()};
    }
    case ActivationKind::kGelu: {  // a Phi(a), the exact form
      const at::Tensor phi = (1 + at::erf(a * M_SQRT1_2)) * 0.5;
      const double inverse_root_two_pi = M_SQRT1_2 * M_2_SQRTPI / 2;
      return {a * phi,
              with_slope ? phi + a * at::exp(a * a * -0.5) * inverse_root_two_pi : at::Tensor()};
    }
    case ActivationKind::kSigmoid: {
      const at::Tensor y = at::sigmoid(a);
      return {y, with_slope ? y * (1 - y) : at::Tensor()};
    }
  }
  return {};
}

Dual ApplyLayers(const std::vector<BoundLayer>& layers, Dual x, const Dual& depth);

// One overload for each kind of layer.
struct Forward {
  const BoundLayer& bound;
  const Dual& x;
  const Dual& depth;

  Dual operator()(const LinearLayer&) const {
    return Affine(x, bound.bias, [&](const at::Tensor& v, const at::Tensor& bias) {
      return at::linear(v, bound.weight, bias);
    });
  }

  Dual operator()(const Conv2dLayer& conv) const {
    return Affine(x, bound.bias, [&](const at::Tensor& v, const at::Tensor& bias) {
      return Convolution(v, bound.weight, bias, conv);
    });
  }

  Dual operator()(const BatchNormLayer& norm) const {
    const at::Tensor scale =
        PerChannel(bound.weight / at::sqrt(bound.running_var + norm.eps), x.value);
    const at::Tensor mean = PerChannel(bound.running_mean, x.value);
    return {(x.value - mean) * scale + PerChannel(bound.bias, x.value),
            HasTangents(x) ? x.tangents * scale : at::Tensor()};
  }

  // With c = v - mean(v) over a group and r = 1/sqrt(mean(c^2) + eps): y = c r, and for a tangent t
  // with d = t - mean(t): dy = r d - c r^3 mean(c d).
  Dual operator()(const GroupNormLayer& norm) const {
    const auto grouped = [&](const at::Tensor& v, const int64_t batch_dims) {
      std::vector<int64_t> shape(v.sizes().begin(), v.sizes().begin() + batch_dims);
      shape.insert(shape.end(), {norm.groups, -1});
      return v.reshape(shape);
    };
    const auto mean = [](const at::Tensor& v) { return v.mean(-1, /*keepdim=*/true); };
    const at::Tensor v = grouped(x.value, 1);
    const at::Tensor c = v - mean(v);
    const at::Tensor r = at::rsqrt(mean(c * c) + norm.eps);
    const at::Tensor weight = PerChannel(bound.weight, x.value);
    Dual y{(c * r).view_as(x.value) * weight + PerChannel(bound.bias, x.value), {}};
    if (HasTangents(x)) {
      const at::Tensor t = grouped(x.tangents, 2);
      const at::Tensor d = t - mean(t);
      y.tangents = (d * r - c * (r * r * r) * mean(c * d)).view_as(x.tangents) * weight;
    }
    return y;
  }

  Dual operator()(const ActivationLayer& activation) const {
    const Derivative y = Activate(activation.kind, x.value, HasTangents(x));
    return {y.value, HasTangents(x) ? x.tangents * y.slope : at::Tensor()};
  }

  Dual operator()(const PreluLayer&) const {
    const at::Tensor slopes = PerChannel(bound.weight, x.value);
    const at::Tensor positive = at::gt(x.value, 0);
    return {at::where(positive, x.value, x.value * slopes),
            HasTangents(x) ? at::where(positive, x.tangents, x.tangents * slopes) : at::Tensor()};
  }

  Dual operator()(const AvgPoolLayer& pool) const {
    return Affine(x, {}, [&](const at::Tensor& v, const at::Tensor&) {
      return at::avg_pool2d(v, pool.kernel, pool.stride, pool.padding);
    });
  }

  Dual operator()(const MeanPoolLayer&) const {
    return {x.value.mean({-2, -1}), HasTangents(x) ? x.tangents.mean({-2, -1}) : at::Tensor()};
  }

  Dual operator()(const FlattenLayer&) const {
    return {x.value.flatten(1), HasTangents(x) ? x.tangents.flatten(2) : at::Tensor()};
  }

  Dual operator()(const DepthCatLayer&) const {
    const auto as_channel = [](const at::Tensor& per_row, const at::Tensor& beside) {
      std::vector<int64_t> shape(static_cast<size_t>(beside.dim()), 1);
      std::copy(per_row.sizes().begin(), per_row.sizes().end(), shape.begin());
      std::vector<int64_t> full(beside.sizes().begin(), beside.sizes().end());
      full[static_cast<size_t>(per_row.dim())] = 1;
      return per_row.view(shape).expand(full);
    };
    Dual y{at::cat({x.value, as_channel(depth.value, x.value)}, 1), {}};
    if (HasTangents(x)) {
      const at::Tensor t =
          depth.tangents.defined()
              ? depth.tangents
              : at::zeros({x.tangents.size(0), x.tangents.size(1)}, x.tangents.options());
      y.tangents = at::cat({x.tangents, as_channel(t, x.tangents)}, 2);
    }
    return y;
  }

  Dual operator()(const AugmentLayer&) const {
    const Dual y = ApplyLayers(bound.inner, x, depth);
    return {at::cat({y.value, x.value}, 1),
            HasTangents(x) ? at::cat({y.tangents, x.tangents}, 2) : at::Tensor()};
  }
};

Dual ApplyLayers(const std::vector<BoundLayer>& layers, Dual x, const Dual& depth) {
  for (const BoundLayer& bound : layers) x = std::visit(Forward{bound, x, depth}, bound.layer.kind);
  return x;
}

absl::Status CheckTensors(const LayerList& layers, std::string_view prefix,
                          const TensorMap& tensors) {
  for (const auto& [name, wanted] : ExpectedTensors(layers, prefix)) {
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

std::vector<BoundLayer> Bind(const LayerList& layers, const std::string& prefix,
                             const TensorMap& tensors) {
  std::vector<BoundLayer> bound;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name = absl::StrCat(prefix, ".", i);
    const auto find = [&](const char* suffix) {
      const auto found = tensors.find(absl::StrCat(name, ".", suffix));
      return found == tensors.end() ? at::Tensor() : found->second;
    };
    BoundLayer layer;
    if (const auto* augment = std::get_if<AugmentLayer>(&layers[i].kind)) {
      layer.inner = Bind(augment->layers, name + ".layers", tensors);
      layer.layer.kind = AugmentLayer{};
    } else {
      layer = {.layer = layers[i],
               .weight = find("weight"),
               .bias = find("bias"),
               .running_mean = find("running_mean"),
               .running_var = find("running_var"),
               .inner = {}};
    }
    bound.push_back(std::move(layer));
  }
  return bound;
}

bool UsesDepth(const std::vector<BoundLayer>& layers) {
  return std::any_of(layers.begin(), layers.end(), [](const BoundLayer& bound) {
    return std::holds_alternative<DepthCatLayer>(bound.layer.kind) || UsesDepth(bound.inner);
  });
}

}  // namespace

Net::Net(std::vector<BoundLayer> layers)
    : layers_(std::move(layers)), uses_depth_(UsesDepth(layers_)) {}

absl::StatusOr<Net> Net::Make(const LayerList& layers, std::string_view prefix,
                              const TensorMap& tensors) {
  HS_RETURN_IF_ERROR(CheckTensors(layers, prefix, tensors));
  return Net(Bind(layers, std::string(prefix), tensors));
}

at::Tensor Net::Apply(const at::Tensor& x, const at::Tensor& depth) const {
  return ApplyLayers(layers_, {x, {}}, {depth, {}}).value;
}

Dual Net::Apply(const Dual& x, const Dual& depth) const { return ApplyLayers(layers_, x, depth); }

}  // namespace hyperserve
