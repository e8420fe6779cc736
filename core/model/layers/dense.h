// Entries of the layer table: layers that mix features or channels. core/model/net/dense.h computes
// them.
#pragma once

#include <cmath>

#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"

namespace hyperserve {

// y = x W^T + b; weight [out, in]. Takes rows [in] only: no dimension before the features.
struct LinearLayer {
  static constexpr std::string_view kName = "linear";
  static constexpr RowRule kRows = RowRule::kMatrix;
  int64_t in = 0, out = 0;
  bool bias = true;

  static void Fields(auto& visit) {
    visit("in", &LinearLayer::in, kChannelRange);
    visit("out", &LinearLayer::out, kChannelRange);
    visit("bias", &LinearLayer::bias);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    if (input != Shape{in}) return Wants(ShapeText({in}), input);
    return Shape{out};
  }
  int64_t Macs(const Shape&) const { return in * out; }
  LayerTensors Tensors() const { return WeightAndBias({out, in}, bias); }
};

// Cross-correlation on NCHW with zero padding; weight [out, in / groups, height, width]. Takes rows
// [in, H, W]. Refuses groups that do not divide both numbers of channels, and a kernel that is
// larger than the padded image. One stride serves both directions; there is no dilation.
struct Conv2dLayer {
  static constexpr std::string_view kName = "conv2d";
  static constexpr RowRule kRows = RowRule::kAny;  // ensured by Convolution() in net/dense.h
  int64_t in = 0, out = 0;
  HeightWidth kernel = 1, padding = 0;
  int64_t stride = 1, groups = 1;
  bool bias = true;

  static void Fields(auto& visit) {
    visit("in", &Conv2dLayer::in, kChannelRange);
    visit("out", &Conv2dLayer::out, kChannelRange);
    visit("kernel", "kernel_size", &Conv2dLayer::kernel, kKernelRange);
    visit("padding", "padding_size", &Conv2dLayer::padding, kPaddingRange);
    visit("stride", &Conv2dLayer::stride, kKernelRange);
    visit("groups", &Conv2dLayer::groups, kChannelRange);
    visit("bias", &Conv2dLayer::bias);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    HS_RETURN_IF_ERROR(CheckDivides("groups", groups, "in", in));
    HS_RETURN_IF_ERROR(CheckDivides("groups", groups, "out", out));
    if (input.size() != 3 || input[0] != in) {
      return Wants(absl::StrCat("[", in, ", H, W]"), input);
    }
    HS_ASSIGN_OR_RETURN(Shape output, WindowShape(input, kernel, padding, stride));
    output[0] = out;
    return output;
  }
  int64_t Macs(const Shape& output) const {
    return *ElementCount(output) * (in / groups) * kernel.height * kernel.width;
  }
  LayerTensors Tensors() const {
    return WeightAndBias({out, in / groups, kernel.height, kernel.width}, bias);
  }
};

// The transpose of a convolution (PyTorch's ConvTranspose2d): each input pixel adds its kernel to a
// window of the output; weight [in, out, kernel, kernel]. Takes rows [in, H, W]; gives (H - 1)
// stride - 2 padding + kernel + output_padding, and W likewise. Refuses padding >= kernel,
// output_padding >= stride, and what leaves no pixel. It has no groups.
struct ConvTranspose2dLayer {
  static constexpr std::string_view kName = "conv_transpose2d";
  static constexpr RowRule kRows = RowRule::kAny;  // as Conv2dLayer
  int64_t in = 0, out = 0, kernel = 1, padding = 0, stride = 1, output_padding = 0;
  bool bias = true;

  static void Fields(auto& visit) {
    visit("in", &ConvTranspose2dLayer::in, kChannelRange);
    visit("out", &ConvTranspose2dLayer::out, kChannelRange);
    visit("kernel", &ConvTranspose2dLayer::kernel, kKernelRange);
    visit("padding", &ConvTranspose2dLayer::padding, kPaddingRange);
    visit("stride", &ConvTranspose2dLayer::stride, kKernelRange);
    visit("output_padding", &ConvTranspose2dLayer::output_padding, kPaddingRange);
    visit("bias", &ConvTranspose2dLayer::bias);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    if (input.size() != 3 || input[0] != in) {
      return Wants(absl::StrCat("[", in, ", H, W]"), input);
    }
    if (padding >= kernel) {
      return absl::InvalidArgumentError(
          absl::StrCat("padding ", padding, " is not below kernel ", kernel));
    }
    if (output_padding >= stride) {
      return absl::InvalidArgumentError(
          absl::StrCat("output_padding ", output_padding, " is not below stride ", stride));
    }
    const auto length = [&](int64_t pixels) {
      return (pixels - 1) * stride - 2 * padding + kernel + output_padding;
    };
    const Shape output = {out, length(input[1]), length(input[2])};
    if (output[1] > 0 && output[2] > 0) return output;
    return absl::InvalidArgumentError(
        absl::StrCat("padding ", padding, " leaves nothing of ", ShapeText(input)));
  }
  // As it is computed: a convolution of the input with zeros between its pixels.
  int64_t Macs(const Shape& output) const { return *ElementCount(output) * in * kernel * kernel; }
  LayerTensors Tensors() const {
    LayerTensors tensors = WeightAndBias({in, out, kernel, kernel}, bias);
    if (bias) tensors[1].shape = {out};
    return tensors;
  }
};

// Self-attention over the pixels of [C, H, W]: PyTorch's MultiheadAttention on the H W positions in
// row-major order, with C = channels (Vaswani et al. 2017, "Attention Is All You Need", equation 1
// and section 3.2.2). Each position attends to all. Refuses heads that do not divide the channels,
// and more than kRowElements attention weights a row: memory grows with the square of the pixels.
// There is no mask, no dropout and no code of positions.
struct AttentionLayer {
  static constexpr std::string_view kName = "attention";
  static constexpr RowRule kRows = RowRule::kMatrix;
  int64_t channels = 0, heads = 1;

  static void Fields(auto& visit) {
    visit("channels", &AttentionLayer::channels, kChannelRange);
    visit("heads", &AttentionLayer::heads, kChannelRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    HS_RETURN_IF_ERROR(CheckDivides("heads", heads, "channels", channels));
    if (input.size() != 3 || input[0] != channels) {
      return Wants(absl::StrCat("[", channels, ", H, W]"), input);
    }
    const int64_t positions = input[1] * input[2];
    if (heads * positions * positions <= layer_limits::kRowElements) return input;
    return absl::InvalidArgumentError(absl::StrCat(heads, " heads over ", positions,
                                                   " positions make more than ",
                                                   layer_limits::kRowElements, " weights a row"));
  }
  // Four projections, and two products of positions by positions.
  int64_t Macs(const Shape& output) const {
    const int64_t positions = output[1] * output[2];
    return positions * channels * (4 * channels + 2 * positions);
  }
  LayerTensors Tensors() const {
    const TensorStart start = {.value = 0.0,
                               .spread = std::sqrt(1.5 / static_cast<double>(channels))};
    return {{TensorRole::kInWeight, {3 * channels, channels}, start},
            {TensorRole::kInBias, {3 * channels}, {0.0}},
            {TensorRole::kOutWeight, {channels, channels}, start},
            {TensorRole::kOutBias, {channels}, {0.0}}};
  }
};

}  // namespace hyperserve
