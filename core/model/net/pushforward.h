// Pushforward, the result of each Forward in this folder: a value, and the rule for its tangents.
// Private to net.cc.
//
// What every Forward and Join here promises. x is [B, C, ...], the tangents are [T, B, C, ...], all
// of one dtype and device. Each is made of differentiable operations and changes none of its
// arguments. The bits of a row depend on other rows only as the kind's RowRule says. Nothing is
// checked: Net::Make has checked shapes, and LibTorch throws where they are wrong.
#pragma once

#include <vector>

#include "core/model/net/bound_layer.h"

namespace hyperserve {

// y, and a rule that maps tangents of x [T, B, ...] to tangents of y [T, B, ...]. The rule is
// called only if x has tangents, and before Forward's arguments are destroyed.
template <class Rule>
struct Pushforward {
  at::Tensor value;
  Rule tangents;
};

// For an elementwise function; slope() returns dy/dx.
template <class Slope>
auto Pointwise(const at::Tensor& value, Slope slope) {
  return Pushforward{value, [slope](const at::Tensor& t) { return t * slope(); }};
}

// For an affine layer map(x, bias). Tangents pass as one batch of T * B rows, without the bias.
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

// For a linear layer map(x).
template <class Map>
auto LinearMap(const at::Tensor& x, Map map) {
  return Affine(x, {}, [map](const at::Tensor& v, const at::Tensor&) { return map(v); });
}

// Reshapes a tensor [C] so that it broadcasts over the channels of x [B, C, ...]: to [C, 1, 1] for
// images.
inline at::Tensor PerChannel(const at::Tensor& values, const at::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim() - 1), 1);
  shape[0] = values.numel();
  return values.view(shape);
}

}  // namespace hyperserve
