// Computes the layers of core/model/layers/images.h. Private to net.cc.
#pragma once

#include "core/model/layers/images.h"
#include "core/model/net/pushforward.h"

namespace hyperserve {

// Linear: padding counts as zeros, and divides with the others.
inline auto Forward(const AvgPoolLayer& pool, const at::Tensor& x) {
  return LinearMap(x, [&pool](const at::Tensor& v) {
    return at::avg_pool2d(v, pool.kernel, pool.stride, pool.padding);
  });
}

// The tangent is that of the largest pixel; of equal pixels, the first counts.
inline auto Forward(const MaxPoolLayer& pool, const at::Tensor& x) {
  const auto [y, places] = at::max_pool2d_with_indices(x, pool.kernel, pool.stride, pool.padding);
  return Pushforward{y, [places = places](const at::Tensor& t) {
                       std::vector<int64_t> shape(places.sizes().begin(), places.sizes().end());
                       shape.insert(shape.begin(), t.size(0));
                       const at::Tensor chosen = places.expand(shape).flatten(-2);
                       return t.flatten(-2).gather(-1, chosen).view(shape);
                     }};
}

inline auto Forward(const MeanPoolLayer&, const at::Tensor& x) {
  return LinearMap(x, [](const at::Tensor& v) { return v.mean({-2, -1}); });
}

inline auto Forward(const FlattenLayer&, const at::Tensor& x) {
  return LinearMap(x, [](const at::Tensor& v) { return v.flatten(1); });
}

// Nearest neighbours, made by repetition: no arithmetic, so no rounding.
inline auto Forward(const UpsampleLayer& upsample, const at::Tensor& x) {
  return LinearMap(x, [r = upsample.scale_factor](const at::Tensor& v) {
    return v.unsqueeze(-2)
        .unsqueeze(-1)
        .expand({-1, -1, -1, r, -1, r})
        .reshape({v.size(0), v.size(1), v.size(2) * r, v.size(3) * r});
  });
}

inline auto Forward(const PixelShuffleLayer& shuffle, const at::Tensor& x) {
  return LinearMap(x, [factor = shuffle.upscale_factor](const at::Tensor& v) {
    return at::pixel_shuffle(v, factor);
  });
}

inline auto Forward(const PixelUnshuffleLayer& unshuffle, const at::Tensor& x) {
  return LinearMap(x, [factor = unshuffle.downscale_factor](const at::Tensor& v) {
    return at::pixel_unshuffle(v, factor);
  });
}

}  // namespace hyperserve
