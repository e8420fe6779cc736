// Computes the layers of core/model/layers/dense.h. Private to net.cc.
#pragma once

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <vector>

#include "core/model/layers/dense.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/pushforward.h"

namespace hyperserve {

inline auto Forward(const LinearLayer&, const at::Tensor& x, const BoundLayer& bound) {
  return Affine(x, bound.bias, [&bound](const at::Tensor& v, const at::Tensor& bias) {
    return at::linear(v, bound.weight, bias);
  });
}

// On the CPU in float32, LibTorch chooses between two libraries by the number of rows, and they
// round differently: an image alone would get other bits than the same image in a batch. This
// function always takes the same library. Its way back from an image depends on the images beside
// it as well: where only the images have a derivative, each goes alone.
inline at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const Conv2dLayer& conv) {
  const std::array<int64_t, 2> padding = {conv.padding.height, conv.padding.width},
                               stride = {conv.stride, conv.stride}, dilation = {1, 1};
  if (!x.is_cpu() || x.scalar_type() != at::kFloat) {
    return at::conv2d(x, weight, bias, stride, padding, dilation, conv.groups);
  }
  const auto convolve = [&](const at::Tensor& images) {
    return at::mkldnn_convolution(images.contiguous(), weight, bias, padding, stride, dilation,
                                  conv.groups);
  };
  const bool recorded = at::GradMode::is_enabled() && x.requires_grad();
  if (!recorded || weight.requires_grad()) return convolve(x);
  std::vector<at::Tensor> images;
  for (const at::Tensor& image : x.split(1)) images.push_back(convolve(image));
  return at::cat(images);
}

// A convolution with the kernel turned around, of the input with zeros between and behind its
// pixels.
inline auto Forward(const ConvTranspose2dLayer& conv, const at::Tensor& x,
                    const BoundLayer& bound) {
  return Affine(x, bound.bias, [&conv, &bound](const at::Tensor& v, const at::Tensor& bias) {
    const auto length = [&conv](int64_t pixels) { return (pixels - 1) * conv.stride + 1; };
    const int64_t height = length(v.size(2)), width = length(v.size(3));
    at::Tensor spread =
        at::zeros({v.size(0), conv.in, height + conv.output_padding, width + conv.output_padding},
                  v.options());
    spread.slice(2, 0, height, conv.stride).slice(3, 0, width, conv.stride).copy_(v);
    return Convolution(spread, bound.weight.flip({2, 3}).transpose(0, 1).contiguous(), bias,
                       {.in = conv.in,
                        .out = conv.out,
                        .kernel = conv.kernel,
                        .padding = conv.kernel - 1 - conv.padding});
  });
}

// Queries, keys and values of each head, [..., heads, P, channels / heads].
struct AttentionParts {
  at::Tensor queries, keys, values;
};
// Of [..., C, H, W], so that values and tangents go through the same function; tangents have no
// bias.
inline AttentionParts Project(const AttentionLayer& layer, const at::Tensor& pixels,
                              const at::Tensor& weight, const at::Tensor& bias) {
  // [..., C, H, W] to [..., P, C] and [..., P, 3, heads, C / heads].
  const at::Tensor all = at::linear(pixels.flatten(-2).transpose(-2, -1), weight, bias);
  std::vector<int64_t> shape(all.sizes().begin(), all.sizes().end() - 1);
  shape.insert(shape.end(), {3, layer.heads, layer.channels / layer.heads});
  const at::Tensor split = all.view(shape).movedim(-4, -2);
  return {split.select(-4, 0), split.select(-4, 1), split.select(-4, 2)};
}

// softmax(Q K^T / sqrt(C / heads)) V. With S the shares and dA the tangent of the scores, dS = S
// (dA - sum(S dA)).
inline auto Forward(const AttentionLayer& layer, const at::Tensor& x, const BoundLayer& bound) {
  const double scale = 1 / std::sqrt(static_cast<double>(layer.channels / layer.heads));
  const auto merged = [&bound](const at::Tensor& heads, const at::Tensor& bias,
                               at::IntArrayRef shape) {
    const at::Tensor rows = heads.movedim(-3, -2).flatten(-2);  // [..., P, C]
    return at::linear(rows, bound.out_weight, bias).transpose(-2, -1).reshape(shape);
  };
  const AttentionParts at_x = Project(layer, x, bound.in_weight, bound.in_bias);
  const at::Tensor share =
      at::softmax(at::matmul(at_x.queries, at_x.keys.transpose(-2, -1)) * scale, -1);
  return Pushforward{
      merged(at::matmul(share, at_x.values), bound.out_bias, x.sizes()),
      [=, &layer, &bound](const at::Tensor& t) {
        const AttentionParts d = Project(layer, t, bound.in_weight, {});
        const at::Tensor score = (at::matmul(d.queries, at_x.keys.transpose(-2, -1)) +
                                  at::matmul(at_x.queries, d.keys.transpose(-2, -1))) *
                                 scale;
        const at::Tensor of_share = share * (score - (share * score).sum(-1, true));
        return merged(at::matmul(of_share, at_x.values) + at::matmul(share, d.values), {},
                      t.sizes());
      }};
}

inline auto Forward(const Conv2dLayer& conv, const at::Tensor& x, const BoundLayer& bound) {
  return Affine(x, bound.bias, [&conv, &bound](const at::Tensor& v, const at::Tensor& bias) {
    return Convolution(v, bound.weight, bias, conv);
  });
}

}  // namespace hyperserve
