// Limits on what a spec file may say: far above any sensible model, low enough that no sum or
// product in core/model overflows and no hostile file makes us work or allocate without bound. The
// limits on layers stand in core/model/layers/layer_limits.h, those on the sizes of files in
// core/model/repository/repository.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperserve::spec_limits {

inline constexpr int64_t kSteps = 10000;       // one K that a correction claims
inline constexpr double kStepSize = 1e6;       // the largest end of eps
inline constexpr int64_t kListLength = 64;     // steps claimed, provenance entries
inline constexpr size_t kGateClaims = 16;      // steps claimed that the gate measures
inline constexpr int64_t kProbeRowsMin = 16;   // fewer say little about an error
inline constexpr int64_t kProbeRowsMax = 256;  // more cost time and say no more
inline constexpr int64_t kTextBytes = 4096;    // a label, a provenance entry

}  // namespace hyperserve::spec_limits
