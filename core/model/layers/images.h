// Entries of the layer table: layers that pool or rearrange the pixels of [C, H, W].
// core/model/net/images.h computes them.
#pragma once

#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"

namespace hyperserve {

// The two kinds share fields and shapes.
enum class Pooling { kMean, kMax };

// The mean or the largest number of each window. As in PyTorch, padding counts as zeros in the mean
// and is never the largest. Refuses padding above half of the kernel, and a window that does not
// fit. A stride that the file leaves out is the kernel's. Windows that would reach beyond the
// padded image are left out.
template <Pooling pooling>
struct PoolLayer {
  static constexpr std::string_view kName = pooling == Pooling::kMean ? "avg_pool" : "max_pool";
  static constexpr RowRule kRows = RowRule::kAny;
  int64_t kernel = 2, stride = 2, padding = 0;

  static void Fields(auto& visit) {
    visit("kernel", &PoolLayer::kernel, kKernelRange);
    visit("stride", &PoolLayer::stride, kKernelRange, &PoolLayer::kernel);  // absent: the kernel's
    visit("padding", &PoolLayer::padding, kPaddingRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    if (padding > kernel / 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("padding ", padding, " is more than half of kernel ", kernel));
    }
    return WindowShape(input, kernel, padding, stride);
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return {}; }
};
using AvgPoolLayer = PoolLayer<Pooling::kMean>;
using MaxPoolLayer = PoolLayer<Pooling::kMax>;

// The mean over all pixels: [C, H, W] to [C].
struct MeanPoolLayer {
  static constexpr std::string_view kName = "mean_pool";
  static constexpr RowRule kRows = RowRule::kAny;

  static void Fields(auto&) {}
  absl::StatusOr<Shape> Output(const Shape& input) const {
    if (input.size() != 3) return Wants("[C, H, W]", input);
    return Shape{input[0]};
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return {}; }
};

// Any shape to [number of elements]. In row-major order, so channels stay together.
struct FlattenLayer {
  static constexpr std::string_view kName = "flatten";
  static constexpr RowRule kRows = RowRule::kAny;

  static void Fields(auto&) {}
  absl::StatusOr<Shape> Output(const Shape& input) const {
    return Shape{ElementCount(input).value_or(-1)};
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return {}; }
};

// Repeats each pixel: [C, H, W] to [C, H r, W r] with r = scale_factor.
struct UpsampleLayer {
  static constexpr std::string_view kName = "upsample";
  static constexpr RowRule kRows = RowRule::kAny;
  int64_t scale_factor = 1;

  static void Fields(auto& visit) {
    visit("scale_factor", &UpsampleLayer::scale_factor, kKernelRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    if (input.size() != 3) return Wants("[C, H, W]", input);
    return Shape{input[0], input[1] * scale_factor, input[2] * scale_factor};
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return {}; }
};

// [C r^2, H, W] to [C, H r, W r] with r = upscale_factor. Channel (c, i, j) of pixel (y, x) becomes
// channel c of pixel (y r + i, x r + j). Refuses channels that r^2 does not divide.
struct PixelShuffleLayer {
  static constexpr std::string_view kName = "pixel_shuffle";
  static constexpr RowRule kRows = RowRule::kAny;
  int64_t upscale_factor = 1;

  static void Fields(auto& visit) {
    visit("upscale_factor", &PixelShuffleLayer::upscale_factor, kKernelRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    if (input.size() != 3) return Wants("[C, H, W]", input);
    const int64_t r = upscale_factor;
    HS_RETURN_IF_ERROR(CheckDivides("upscale_factor squared", r * r, "channels", input[0]));
    return Shape{input[0] / (r * r), input[1] * r, input[2] * r};
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return {}; }
};

// The inverse: [C, H r, W r] to [C r^2, H, W] with r = downscale_factor. Refuses a height or width
// that r does not divide.
struct PixelUnshuffleLayer {
  static constexpr std::string_view kName = "pixel_unshuffle";
  static constexpr RowRule kRows = RowRule::kAny;
  int64_t downscale_factor = 1;

  static void Fields(auto& visit) {
    visit("downscale_factor", &PixelUnshuffleLayer::downscale_factor, kKernelRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    if (input.size() != 3) return Wants("[C, H, W]", input);
    const int64_t r = downscale_factor;
    HS_RETURN_IF_ERROR(CheckDivides("downscale_factor", r, "height", input[1]));
    HS_RETURN_IF_ERROR(CheckDivides("downscale_factor", r, "width", input[2]));
    return Shape{input[0] * r * r, input[1] / r, input[2] / r};
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return {}; }
};

}  // namespace hyperserve
