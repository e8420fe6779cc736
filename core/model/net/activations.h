// Computes the layers of core/model/layers/activations.h: values and slopes. Private to net.cc.
#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "core/model/layers/activations.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/pushforward.h"

namespace hyperserve {

// y' = 1 - y^2: the slope comes from the value, which is kept.
inline auto Forward(const TanhLayer&, const at::Tensor& a) {
  const at::Tensor y = at::tanh(a);
  return Pointwise(y, [y] { return 1 - y * y; });
}

// y' = y (1 - y).
inline auto Forward(const SigmoidLayer&, const at::Tensor& a) {
  const at::Tensor y = at::sigmoid(a);
  return Pointwise(y, [y] { return y * (1 - y); });
}

inline auto Forward(const SinLayer&, const at::Tensor& a) {
  return Pointwise(at::sin(a), [a] { return at::cos(a); });
}

// The slope at 0 is 0, as PyTorch's.
inline auto Forward(const ReluLayer&, const at::Tensor& a) {
  return Pointwise(at::relu(a), [a] { return at::gt(a, 0).to(a.scalar_type()); });
}

// With g = sigmoid(a), y = a g and y' = g (1 + a (1 - g)).
inline auto Forward(const SiluLayer&, const at::Tensor& a) {
  const at::Tensor gate = at::sigmoid(a);
  return Pointwise(a * gate, [a, gate] { return gate * (1 + a * (1 - gate)); });
}

// scale a where a > 0, else scale alpha (e^a - 1).
inline auto ExponentialLinear(const at::Tensor& a, const double alpha, const double scale) {
  return Pointwise(at::elu(a, alpha, scale), [=] {
    return at::where(at::gt(a, 0), scale, at::exp(at::clamp_max(a, 0)) * (alpha * scale));
  });
}

inline auto Forward(const EluLayer& elu, const at::Tensor& a) {
  return ExponentialLinear(a, elu.alpha, 1.0);
}

// With these two constants layers keep mean 0 and variance 1 (Klambauer et al. 2017,
// "Self-Normalizing Neural Networks").
inline auto Forward(const SeluLayer&, const at::Tensor& a) {
  return ExponentialLinear(a, 1.6732632423543772, 1.0507009873554805);
}

// The slope at 0 is negative_slope.
inline auto Forward(const LeakyReluLayer& leaky, const at::Tensor& a) {
  return Pointwise(at::leaky_relu(a, leaky.negative_slope), [=] {
    const at::Tensor one = at::ones({}, a.options());
    return at::where(at::gt(a, 0), one, one * leaky.negative_slope);
  });
}

// max(b, 0) + log(1 + e^-|b|): no cancellation and no overflow.
inline at::Tensor SoftplusValue(const at::Tensor& b) {
  return at::log1p(at::abs(b).neg_().exp()).add_(at::clamp_min(b, 0));
}

// The same in a graph of LibTorch. The derivative of the parts would take six times the time of
// this one.
struct RecordedSoftplus : torch::autograd::Function<RecordedSoftplus> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& b) {
    context->save_for_backward({b});
    return SoftplusValue(b);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list cotangents) {
    return {cotangents[0] * at::sigmoid(context->get_saved_variables()[0])};
  }
};

// Softplus of b = beta a, divided by beta. On CUDA one kernel does it: log1p(e^b), and b itself
// from where e^-b is below half a unit in its last place.
inline auto Forward(const SoftplusLayer& softplus, const at::Tensor& a) {
  const double beta = softplus.beta;
  const at::Tensor b = beta == 1.0 ? a : a * beta;
  const auto value = [&] {
    if (b.is_cuda()) return at::softplus(b, 1.0, b.scalar_type() == at::kDouble ? 40.0 : 20.0);
    const bool recorded = at::GradMode::is_enabled() && b.requires_grad();
    return recorded ? RecordedSoftplus::apply(b) : SoftplusValue(b);
  };
  return Pointwise(beta == 1.0 ? value() : value() / beta, [b] { return at::sigmoid(b); });
}

// The slope is 1 at both ends, as PyTorch's.
inline auto Forward(const ClampLayer& clamp, const at::Tensor& a) {
  return Pointwise(at::clamp(a, clamp.low, clamp.high), [=] {
    return at::logical_and(at::ge(a, clamp.low), at::le(a, clamp.high)).to(a.scalar_type());
  });
}

// a p with p = (1 + erf(a / sqrt 2)) / 2 or p = (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) / 2
// (Hendrycks and Gimpel 2016, "Gaussian Error Linear Units").
inline auto Forward(const GeluLayer& gelu, const at::Tensor& a) {
  const bool by_tanh = gelu.approximate == GeluForm::kTanh;
  const double root = M_SQRT2 * M_2_SQRTPI / 2, cubic = 0.044715;  // sqrt(2 / pi)
  const at::Tensor p =
      (1 + (by_tanh ? at::tanh((a + a * a * a * cubic) * root) : at::erf(a * M_SQRT1_2))) * 0.5;
  return Pointwise(a * p, [=] {
    const at::Tensor density = by_tanh ? p * (1 - p) * (a * a * (3 * cubic) + 1) * (2 * root)
                                       : at::exp(a * a * -0.5) * (root / 2);
    return p + a * density;
  });
}

// The slope at 0 is the learned one. Where there is one for each channel, dimension 1 of x holds
// the channels.
inline auto Forward(const PreluLayer&, const at::Tensor& x, const BoundLayer& bound) {
  const at::Tensor slopes = PerChannel(bound.weight, x);
  const at::Tensor y = x.is_cuda() ? at::prelu(x, bound.weight)  // one kernel instead of three
                                   : at::where(at::gt(x, 0), x, x * slopes);
  return Pushforward{y,
                     [=](const at::Tensor& t) { return at::where(at::gt(x, 0), t, t * slopes); }};
}

}  // namespace hyperserve
