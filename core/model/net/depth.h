// Computes the layers of core/model/layers/depth.h. Private to net.cc.
#pragma once

#include <cmath>
#include <vector>

#include "core/model/layers/depth.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/pushforward.h"

namespace hyperserve {

// `inner` [B, 2 C] holds scales and shifts; its tangents are undefined where the depth has none.
inline Dual Modulated(const FilmGate kind, const Dual& x, const Dual& inner) {
  const int64_t channels = x.value.size(1), images = x.value.dim() - 2;
  const auto half = [&](const at::Tensor& v, int64_t first) {
    at::Tensor part = v.narrow(-1, first, channels);
    for (int64_t i = 0; i < images; ++i) part = part.unsqueeze(-1);
    return part;
  };
  const at::Tensor a = half(inner.value, 0);
  const at::Tensor gate = kind == FilmGate::kSigmoid ? at::sigmoid(a) : 1 + a;
  Dual y{x.value * gate + half(inner.value, channels), {}};
  if (!x.tangents.defined()) return y;
  y.tangents = x.tangents * gate;
  if (inner.tangents.defined()) {
    at::Tensor of_gate = half(inner.tangents, 0);
    if (kind == FilmGate::kSigmoid) of_gate = of_gate * (gate * (1 - gate));
    y.tangents = y.tangents + x.value * of_gate + half(inner.tangents, channels);
  }
  return y;
}

inline Dual Join(const FilmLayer& film, const Dual& x, const Dual& inner) {
  return Modulated(film.gate, x, inner);
}

inline Dual Join(const ConditionFilmLayer& film, const Dual& x, const Dual& inner) {
  return Modulated(film.gate, x, inner);
}

// x [B, 1]; frequencies [features / 2].
inline auto CosinesAndSines(const at::Tensor& x, const at::Tensor& frequencies) {
  const at::Tensor angles = x * frequencies;
  const at::Tensor cosines = at::cos(angles), sines = at::sin(angles);
  return Pushforward{at::cat({cosines, sines}, -1), [=](const at::Tensor& t) {
                       const at::Tensor speed = t * frequencies;
                       return at::cat({-sines * speed, cosines * speed}, -1);
                     }};
}

// Makes the frequencies anew at every call, on the device of x.
inline auto Forward(const SinusoidalLayer& embedding, const at::Tensor& x) {
  const int64_t half = embedding.features / 2;
  const at::Tensor powers =
      at::arange(half, x.options()) * (-std::log(embedding.max_period) / static_cast<double>(half));
  return CosinesAndSines(x, at::exp(powers) * embedding.scale);
}

inline auto Forward(const FourierFeaturesLayer&, const at::Tensor& x, const BoundLayer& bound) {
  return CosinesAndSines(x, bound.weight * (2 * M_PI));
}

// The functions of a basis at s [B] and their derivatives, each [B, terms, 1].
struct BasisAt {
  at::Tensor values, slopes;
};
// By recurrence: s^k = s s^(k-1), and T_k = 2 s T_(k-1) - T_(k-2) with T_1 = s.
inline BasisAt EvaluateBasis(const GalerkinLinearLayer& layer, const at::Tensor& s) {
  std::vector<at::Tensor> values = {at::ones_like(s)}, slopes = {at::zeros_like(s)};
  for (int64_t k = 1; k < layer.terms; ++k) {
    const auto last = static_cast<size_t>(k - 1);
    const bool first = k == 1;
    if (layer.basis == GalerkinBasis::kFourier) {
      const double w = 2 * M_PI * static_cast<double>((k + 1) / 2) / layer.period;
      const at::Tensor cosine = at::cos(s * w), sine = at::sin(s * w);
      values.push_back(k % 2 == 1 ? sine : cosine);
      slopes.push_back(k % 2 == 1 ? cosine * w : sine * -w);
    } else if (layer.basis == GalerkinBasis::kPolynomial || first) {
      values.push_back(values[last] * s);
      slopes.push_back(slopes[last] * s + values[last]);
    } else {
      values.push_back(values[last] * s * 2 - values[last - 1]);
      slopes.push_back((slopes[last] * s + values[last]) * 2 - slopes[last - 1]);
    }
  }
  return {at::stack(values, -1).unsqueeze(-1), at::stack(slopes, -1).unsqueeze(-1)};
}

// One product with all terms of the matrix, then the sum over the basis. The tangent has a part by
// x and, where the depth has tangents, one by s.
inline auto Forward(const GalerkinLinearLayer& layer, const at::Tensor& x, const Dual& depth,
                    const BoundLayer& bound) {
  const BasisAt basis = EvaluateBasis(layer, depth.value);
  const at::Tensor weight = bound.weight.flatten(0, 1);
  const at::Tensor bias = bound.bias.defined() ? bound.bias.flatten() : at::Tensor();
  const at::Tensor each = at::linear(x, weight, bias).view({x.size(0), layer.terms, layer.out});
  return Pushforward{(each * basis.values).sum(1), [=, &layer, &depth](const at::Tensor& t) {
                       const at::Tensor of_each =
                           at::linear(t.flatten(0, 1), weight)
                               .view({t.size(0), t.size(1), layer.terms, layer.out});
                       const at::Tensor of_x = (of_each * basis.values).sum(2);
                       if (!depth.tangents.defined()) return of_x;
                       return of_x + (each * basis.slopes).sum(1) * depth.tangents.unsqueeze(-1);
                     }};
}

}  // namespace hyperserve
