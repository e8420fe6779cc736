// How a layer carries tangents: what each Forward of this folder gives back. Inside net.cc only.
#pragma once

#include <vector>

#include "core/model/net/bound_layer.h"

namespace hyperserve {

// y, and the rule that makes tangents of y [T, B, ...] from tangents of x [T, B, ...]. The rule is
// called only where there are tangents.
template <class Rule>
struct Pushforward {
  at::Tensor value;
  Rule tangents;
};

// For a function of single numbers; slope() is dy/dx.
template <class Slope>
auto Pointwise(const at::Tensor& value, Slope slope) {
  return Pushforward{value, [slope](const at::Tensor& t) { return t * slope(); }};
}

// For a layer that is linear but for a bias: map(x, bias). Tangents pass as one batch of T * B
// rows, without the bias.
template <class Map>
auto Affine(const at::Tensor& x, const at::Tensor& bias, Map map) {
  return Pushforward{map(x, bias), [map](const at::Tensor& t) {
                       const at::Tensor y = map(t.flatten(0, 1), at::Tensor());
                       std::vector<int64_t> shape(y.sizes().begin(), y.sizes().end());
                       shape[0] = t.size(1);
                       shape.insert(shape.begin(), t.size(0));
                       return y.view(shape);
                     }};
}

// For a layer that is linear: map(x).
template <class Map>
auto LinearMap(const at::Tensor& x, Map map) {
  return Affine(x, {}, [map](const at::Tensor& v, const at::Tensor&) { return map(v); });
}

// A tensor [C] as [C, 1, 1], to be broadcast over [..., C, H, W], or as it is over [..., C]; x is
// [B, C, ...].
inline at::Tensor PerChannel(const at::Tensor& values, const at::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim() - 1), 1);
  shape[0] = values.numel();
  return values.view(shape);
}

}  // namespace hyperserve
