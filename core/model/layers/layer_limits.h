// Limits on the layers of a spec file. They are far above any sensible net, and low enough that no
// sum or product in core/model overflows and no hostile file causes unbounded work or memory.
#pragma once

#include <cstdint>

namespace hyperserve::layer_limits {

inline constexpr int64_t kLayers = 256;           // layers of one list, also inner ones
inline constexpr int kNesting = 4;                // depth of nested augment and residual layers
inline constexpr int64_t kChannels = 65536;       // features or channels, in and out
inline constexpr int64_t kKernel = 64;            // pixels; also padding, stride, shuffle factors
inline constexpr int64_t kRowElements = 1 << 24;  // numbers of one row after any layer
inline constexpr double kCoefficient = 1e6;       // an activation's slope or scale, a norm's eps
inline constexpr double kSmallest = 1e-30;        // a divisor; float32 can hold it

}  // namespace hyperserve::layer_limits
