// Convolutions whose rows have the same bits in any batch. Private to net.cc.
#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cstdint>
#include <vector>

#include "core/model/layers/dense.h"
#include "core/model/layers/kind.h"

namespace hyperserve {

// On the CPU in float32, LibTorch chooses between two libraries by the number of rows, and they
// round differently: an image alone would get other bits than the same image in a batch. This
// function always takes the same library.
inline at::Tensor OneLibraryConvolution(const at::Tensor& images, const at::Tensor& weight,
                                        const at::Tensor& bias, at::IntArrayRef padding,
                                        int64_t stride, int64_t groups) {
  return at::mkldnn_convolution(images.contiguous(), weight, bias, padding, {stride, stride},
                                {1, 1}, groups);
}

// The same with a way back to the images alone, by steps of one pixel and without groups. That
// library's own way back from an image depends on the images beside it, so it is made of the
// forward function: the kernel turned around over the cotangents. Each image by itself would have
// independent bits too, but an image of 16x16 pixels then takes three times as long.
struct RecordedConvolution : torch::autograd::Function<RecordedConvolution> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& images,
                            const at::Tensor& weight, const at::Tensor& bias, HeightWidth padding) {
    context->save_for_backward({weight});
    context->saved_data["padding"] = std::vector<int64_t>{weight.size(2) - 1 - padding.height,
                                                          weight.size(3) - 1 - padding.width};
    return OneLibraryConvolution(images, weight, bias, {padding.height, padding.width}, 1, 1);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list cotangents) {
    const at::Tensor weight = context->get_saved_variables()[0];
    const at::Tensor turned = weight.flip({2, 3}).transpose(0, 1).contiguous();
    const std::vector<int64_t> padding = context->saved_data["padding"].toIntVector();
    return {OneLibraryConvolution(cotangents[0], turned, {}, padding, 1, 1), {}, {}, {}};
  }
};

inline at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const Conv2dLayer& conv) {
  const std::array<int64_t, 2> padding = {conv.padding.height, conv.padding.width};
  if (!x.is_cpu() || x.scalar_type() != at::kFloat) {
    return at::conv2d(x, weight, bias, {conv.stride, conv.stride}, padding, {1, 1}, conv.groups);
  }
  const auto convolve = [&](const at::Tensor& images) {
    return OneLibraryConvolution(images, weight, bias, padding, conv.stride, conv.groups);
  };
  const bool recorded = at::GradMode::is_enabled() && x.requires_grad();
  if (!recorded || weight.requires_grad()) return convolve(x);
  if (conv.stride == 1 && conv.groups == 1 && conv.padding.height < weight.size(2) &&
      conv.padding.width < weight.size(3)) {
    return RecordedConvolution::apply(x, weight, bias, conv.padding);
  }
  std::vector<at::Tensor> images;
  for (const at::Tensor& image : x.split(1)) images.push_back(convolve(image));
  return at::cat(images);
}

}  // namespace hyperserve
