// Limits on the layers of a spec file: far above any sensible net, low enough that no sum or
// product in core/model overflows and no hostile file makes us work or allocate without bound.
#pragma once

#include <cstdint>

namespace hyperserve::layer_limits {

inline constexpr int64_t kLayers = 256;           // of one list, inner layers included
inline constexpr int kNesting = 4;                // augments and residuals within each other
inline constexpr int64_t kChannels = 65536;       // features or channels in and out
inline constexpr int64_t kKernel = 64;            // pixels; also padding, stride, shuffle factors
inline constexpr int64_t kRowElements = 1 << 24;  // numbers of one row after any layer
inline constexpr double kCoefficient = 1e6;       // an activation's slope or scale, a norm's eps
inline constexpr double kSmallest = 1e-30;        // what is divided by; float32 holds it, too

}  // namespace hyperserve::layer_limits
