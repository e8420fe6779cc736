// Limits on what a spec file may say: far above any sensible model, low enough that no sum or
// product in core/model overflows and no hostile file makes us work or allocate without bound. The
// limits on the sizes of files stand in core/model/repository/repository.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperserve::spec_limits {

inline constexpr int64_t kLayers = 256;           // of one list, augments' layers included
inline constexpr int kNesting = 4;                // augments within augments
inline constexpr int64_t kChannels = 65536;       // features or channels in and out
inline constexpr int64_t kKernel = 64;            // pixels; also padding and stride
inline constexpr int64_t kRowElements = 1 << 24;  // numbers of one row after any layer
inline constexpr int64_t kSteps = 10000;          // one K that a correction claims
inline constexpr double kStepSize = 1e6;          // the largest end of eps
inline constexpr int64_t kListLength = 64;        // steps claimed, provenance entries
inline constexpr size_t kGateClaims = 16;         // steps claimed that the gate measures
inline constexpr int64_t kProbeRowsMin = 16;      // fewer say little about an error
inline constexpr int64_t kProbeRowsMax = 256;     // more cost time and say no more
inline constexpr int64_t kTextBytes = 4096;       // a label, a provenance entry

}  // namespace hyperserve::spec_limits
