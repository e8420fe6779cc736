// Computes the layers of core/model/layers/joins.h. Private to net.cc.
#pragma once

#include <algorithm>

#include "core/model/layers/joins.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/pushforward.h"

namespace hyperserve {

// Adds s [B] or [T, B] as a channel, first or last, to x [B, C, ...] or [T, B, C, ...].
inline at::Tensor WithChannel(const at::Tensor& x, const at::Tensor& s, const bool first) {
  std::vector<int64_t> one(static_cast<size_t>(x.dim()), 1);
  std::copy(s.sizes().begin(), s.sizes().end(), one.begin());
  std::vector<int64_t> full(x.sizes().begin(), x.sizes().end());
  full[static_cast<size_t>(s.dim())] = 1;
  const at::Tensor channel = s.view(one).expand(full);
  return first ? at::cat({channel, x}, s.dim()) : at::cat({x, channel}, s.dim());
}

inline auto Forward(const DepthCatLayer& depth_cat, const at::Tensor& x, const Dual& depth) {
  return Pushforward{WithChannel(x, depth.value, depth_cat.first),
                     [&depth, first = depth_cat.first](const at::Tensor& t) {
                       const at::Tensor s = depth.tangents.defined()
                                                ? depth.tangents
                                                : at::zeros({t.size(0), t.size(1)}, t.options());
                       return WithChannel(t, s, first);
                     }};
}

// For a join that is linear in both arguments: join(x, inner, dimensions before the channels).
template <class LinearJoin>
Dual JoinLinearly(const Dual& x, const Dual& inner, const LinearJoin& join) {
  return {join(x.value, inner.value, 1),
          x.tangents.defined() ? join(x.tangents, inner.tangents, 2) : at::Tensor()};
}

template <InputSide side>
Dual Join(const BesideLayer<side>&, const Dual& x, const Dual& inner) {
  return JoinLinearly(x, inner, [](const at::Tensor& a, const at::Tensor& b, int64_t channels) {
    return side == InputSide::kAfter ? at::cat({b, a}, channels) : at::cat({a, b}, channels);
  });
}

inline Dual Join(const ResidualLayer&, const Dual& x, const Dual& inner) {
  return JoinLinearly(x, inner,
                      [](const at::Tensor& a, const at::Tensor& b, int64_t) { return a + b; });
}

}  // namespace hyperserve
