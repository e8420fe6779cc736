// Choosing between two states row by row. Rows are copied bit for bit. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/ode/space.h"

namespace hyperserve {

// Of no entries: All is true and Any is false.
inline bool All(const std::vector<bool>& mask) {
  return std::find(mask.begin(), mask.end(), false) == mask.end();
}

// Both read the mask once and allocate nothing.
inline bool Any(const std::vector<bool>& mask) {
  return std::find(mask.begin(), mask.end(), true) != mask.end();
}

// The rows of `yes` where the mask is set, of `no` elsewhere. One mask entry for each row.
// Precondition: both have as many rows. `yes` is returned as it is where every entry is set.
template <StateSpace Space>
typename Space::State Choose(const Space& space, const std::vector<bool>& mask,
                             typename Space::State yes, const typename Space::State& no) {
  return All(mask) ? std::move(yes) : space.Where(mask, yes, no);
}

}  // namespace hyperserve
