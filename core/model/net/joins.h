// Computes the layers of core/model/layers/joins.h. Private to net.cc.
#pragma once

#include <vector>

#include "core/model/layers/joins.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/pushforward.h"

namespace hyperserve {

// Adds numbers [B, F] or [T, B, F] as channels, first or last, to x [B, C, ...] or [T, B, C, ...].
inline at::Tensor WithChannels(const at::Tensor& x, at::Tensor numbers, const bool first) {
  const int64_t channels = numbers.dim() - 1;
  std::vector<int64_t> full(x.sizes().begin(), x.sizes().end());
  full[static_cast<size_t>(channels)] = numbers.size(channels);
  while (numbers.dim() < x.dim()) numbers = numbers.unsqueeze(-1);
  const at::Tensor beside = numbers.expand(full);
  return first ? at::cat({beside, x}, channels) : at::cat({x, beside}, channels);
}

// Borrows the depth until the tangents are made. A depth without tangents adds zeros.
inline auto Forward(const DepthCatLayer& depth_cat, const at::Tensor& x, const Dual& depth) {
  return Pushforward{WithChannels(x, depth.value.unsqueeze(-1), depth_cat.first),
                     [&depth, first = depth_cat.first](const at::Tensor& t) {
                       const at::Tensor s = depth.tangents.defined()
                                                ? depth.tangents
                                                : at::zeros({t.size(0), t.size(1)}, t.options());
                       return WithChannels(t, s.unsqueeze(-1), first);
                     }};
}

// The same of the condition.
inline auto Forward(const ConditionCatLayer& cat, const at::Tensor& x, const Dual& condition) {
  return Pushforward{WithChannels(x, condition.value, cat.first),
                     [&condition, first = cat.first](const at::Tensor& t) {
                       const at::Tensor c =
                           condition.tangents.defined()
                               ? condition.tangents
                               : at::zeros({t.size(0), t.size(1), condition.value.size(1)},
                                           t.options());
                       return WithChannels(t, c, first);
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

// All branches have tangents, or none has: each sees the same x.
inline Dual Join(const ParallelLayer&, const std::vector<Dual>& branches) {
  std::vector<at::Tensor> values, tangents;
  for (const Dual& branch : branches) {
    values.push_back(branch.value);
    if (branch.tangents.defined()) tangents.push_back(branch.tangents);
  }
  return {at::cat(values, 1), tangents.empty() ? at::Tensor() : at::cat(tangents, 2)};
}

inline Dual Join(const ResidualLayer&, const Dual& x, const Dual& inner) {
  return JoinLinearly(x, inner,
                      [](const at::Tensor& a, const at::Tensor& b, int64_t) { return a + b; });
}

}  // namespace hyperserve
