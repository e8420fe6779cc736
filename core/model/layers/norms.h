// Entries of the layer table: normalisations with a learned scale and shift. core/model/net/norms.h
// computes them.
#pragma once

#include <algorithm>

#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"

namespace hyperserve {

// Each channel by the running mean and variance in the weights file (eval mode). y = (x -
// running_mean) / sqrt(running_var + eps) weight + bias (Ioffe and Szegedy 2015). Never a mean over
// the batch, so rows do not see each other.
struct BatchNormLayer {
  static constexpr std::string_view kName = "batch_norm";
  static constexpr RowRule kRows = RowRule::kAny;
  int64_t channels = 0;
  double eps = 1e-5;

  static void Fields(auto& visit) {
    visit("channels", &BatchNormLayer::channels, kChannelRange);
    visit("eps", &BatchNormLayer::eps, kDivisorRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const { return SameShape(input, channels); }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const {
    LayerTensors tensors = IdentityScale({channels});
    tensors.push_back({.role = TensorRole::kRunningMean, .shape = {channels}, .start = {0.0}});
    tensors.push_back({.role = TensorRole::kRunningVar, .shape = {channels}, .start = {1.0}});
    return tensors;
  }
};

// A scale and a shift for each channel, without a norm: y = weight x + bias, each [channels].
struct AffineLayer {
  static constexpr std::string_view kName = "affine";
  static constexpr RowRule kRows = RowRule::kAny;
  int64_t channels = 0;

  static void Fields(auto& visit) { visit("channels", &AffineLayer::channels, kChannelRange); }
  absl::StatusOr<Shape> Output(const Shape& input) const { return SameShape(input, channels); }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return IdentityScale({channels}); }
};

// Each of `groups` groups of channels by its own mean and variance. Then weight x + bias for each
// channel (Wu and He 2018). The variance divides by the number of values, not by one less. Refuses
// groups that do not divide the channels.
struct GroupNormLayer {
  static constexpr std::string_view kName = "group_norm";
  static constexpr RowRule kRows = RowRule::kAny;
  int64_t groups = 1, channels = 0;
  double eps = 1e-5;

  static void Fields(auto& visit) {
    visit("groups", &GroupNormLayer::groups, kChannelRange);
    visit("channels", &GroupNormLayer::channels, kChannelRange);
    visit("eps", &GroupNormLayer::eps, kDivisorRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    HS_RETURN_IF_ERROR(CheckDivides("groups", groups, "channels", channels));
    return SameShape(input, channels);
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return IdentityScale({channels}); }
};

// The last dimensions, of shape `normalized_shape`, by their own mean and variance. Then weight x +
// bias, each of that shape (Ba et al. 2016). Refuses rows that do not end in it.
struct LayerNormLayer {
  static constexpr std::string_view kName = "layer_norm";
  static constexpr RowRule kRows = RowRule::kAny;
  Shape normalized_shape;
  double eps = 1e-5;

  static void Fields(auto& visit) {
    visit("normalized_shape", &LayerNormLayer::normalized_shape, kChannelRange);
    visit("eps", &LayerNormLayer::eps, kDivisorRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    if (!std::equal(
            normalized_shape.rbegin(), normalized_shape.rend(), input.rbegin(),
            input.rbegin() + static_cast<long>(std::min(normalized_shape.size(), input.size())))) {
      return Wants(absl::StrCat("a shape that ends in ", ShapeText(normalized_shape)), input);
    }
    return input;
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return IdentityScale(normalized_shape); }
};

}  // namespace hyperserve
