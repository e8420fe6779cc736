// Entries of the layer table: layers that mix features or channels. core/model/net/dense.h computes
// them.
#pragma once

#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"

namespace hyperserve {

// y = x W^T + b; weight [out, in].
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

// Cross-correlation on NCHW with zero padding; weight [out, in / groups, height, width].
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

}  // namespace hyperserve
