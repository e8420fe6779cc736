// Computes the layers of core/model/layers/dense.h. Private to net.cc.
#pragma once

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
// function always takes the same library.
inline at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const Conv2dLayer& conv) {
  const std::array<int64_t, 2> padding = {conv.padding.height, conv.padding.width},
                               stride = {conv.stride, conv.stride}, dilation = {1, 1};
  if (!x.is_cpu() || x.scalar_type() != at::kFloat) {
    return at::conv2d(x, weight, bias, stride, padding, dilation, conv.groups);
  }
  return at::mkldnn_convolution(x.contiguous(), weight, bias, padding, stride, dilation,
                                conv.groups);
}

inline auto Forward(const Conv2dLayer& conv, const at::Tensor& x, const BoundLayer& bound) {
  return Affine(x, bound.bias, [&conv, &bound](const at::Tensor& v, const at::Tensor& bias) {
    return Convolution(v, bound.weight, bias, conv);
  });
}

}  // namespace hyperserve
