// Computes the layers of core/model/layers/norms.h. Private to net.cc.
#pragma once

#include <vector>

#include "core/model/layers/norms.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/pushforward.h"

namespace hyperserve {

// An affine map of each channel, since mean and variance are constants.
inline auto Forward(const BatchNormLayer& norm, const at::Tensor& x, const BoundLayer& bound) {
  const at::Tensor scale = PerChannel(bound.weight / at::sqrt(bound.running_var + norm.eps), x);
  return Pushforward{(x - PerChannel(bound.running_mean, x)) * scale + PerChannel(bound.bias, x),
                     [scale](const at::Tensor& t) { return t * scale; }};
}

// Splits each row into [runs, length], one of which may be -1, and standardises each run by its own
// mean and variance. With c = v - mean(v) and r = 1/sqrt(mean(c^2) + eps), y = c r. For a tangent t
// with d = t - mean(t), dy = r d - c r^3 mean(c d).
inline auto Standardised(const at::Tensor& x, const int64_t runs, const int64_t length,
                         const double eps) {
  const auto split = [runs, length](const at::Tensor& v, const int64_t batch_dims) {
    std::vector<int64_t> shape(v.sizes().begin(), v.sizes().begin() + batch_dims);
    shape.insert(shape.end(), {runs, length});
    return v.reshape(shape);
  };
  const auto mean = [](const at::Tensor& v) { return v.mean(-1, /*keepdim=*/true); };
  const at::Tensor v = split(x, 1);
  const at::Tensor c = v - mean(v);
  const at::Tensor r = at::rsqrt(mean(c * c) + eps);
  return Pushforward{(c * r).view_as(x), [split, mean, c, r](const at::Tensor& tangents) {
                       const at::Tensor t = split(tangents, 2);
                       const at::Tensor d = t - mean(t);
                       return (d * r - c * (r * r * r) * mean(c * d)).view_as(tangents);
                     }};
}

// Applies a scale and a shift after a norm.
template <class Rule>
auto Scaled(const Pushforward<Rule>& norm, const at::Tensor& weight, const at::Tensor& bias) {
  return Pushforward{
      norm.value * weight + bias,
      [rule = norm.tangents, weight](const at::Tensor& t) { return rule(t) * weight; }};
}

inline auto Forward(const AffineLayer&, const at::Tensor& x, const BoundLayer& bound) {
  const at::Tensor scale = PerChannel(bound.weight, x);
  return Pushforward{x * scale + PerChannel(bound.bias, x),
                     [scale](const at::Tensor& t) { return t * scale; }};
}

// Standardises [groups, C / groups * pixels], then scales each channel.
inline auto Forward(const GroupNormLayer& norm, const at::Tensor& x, const BoundLayer& bound) {
  return Scaled(Standardised(x, norm.groups, -1, norm.eps), PerChannel(bound.weight, x),
                PerChannel(bound.bias, x));
}

// The weight has the shape of the last dimensions, so it broadcasts as it is.
inline auto Forward(const LayerNormLayer& norm, const at::Tensor& x, const BoundLayer& bound) {
  return Scaled(Standardised(x, -1, bound.weight.numel(), norm.eps), bound.weight, bound.bias);
}

}  // namespace hyperserve
