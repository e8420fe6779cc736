// Limits on the values of a spec file. They are far above any sensible model, and low enough that
// no sum or product in core/model overflows and no hostile file causes unbounded work or memory.
// The limits on layers stand in core/model/layers/kind.h, those on sizes of files in spec.h
// and core/model/repository/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperserve::spec_limits {

inline constexpr int64_t kSteps = 10000;       // one K that a correction claims
inline constexpr double kStepSize = 1e6;       // the upper end of eps
inline constexpr int64_t kSavedDepths = 1000;  // of a trajectory
inline constexpr int64_t kListLength = 64;     // number of claimed K, of provenance entries
inline constexpr size_t kGateClaims = 16;      // number of claimed K that the gate measures
inline constexpr int64_t kProbeRowsMin = 16;   // with fewer rows an error means little
inline constexpr int64_t kProbeRowsMax = 256;  // more rows cost time and tell no more
inline constexpr double kDeclaredMacs = 1e15;  // of one evaluation of a field.pt2 on one row
inline constexpr int64_t kTextBytes = 4096;    // one label, one provenance entry

}  // namespace hyperserve::spec_limits
